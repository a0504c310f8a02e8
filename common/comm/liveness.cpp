#include "common/comm/liveness.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <sys/syscall.h>

namespace ladder {
namespace {

/// A file of /proc of a thread of this process, as far as one line goes; empty if there is none.
std::string line_of(int thread, const char* file) {
  std::ifstream stream("/proc/self/task/" + std::to_string(thread) + "/" + file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// Not that it runs, or would if there were a core ('R'), waits for a disk ('D') or is held by a
/// debugger ('t'). False, too, where the system does not tell.
bool sleeps(int thread) {
  const std::string line = line_of(thread, "stat");
  const size_t name_end = line.rfind(')');  // the name may hold anything
  return name_end != std::string::npos && line.substr(name_end).starts_with(") S");
}

/// Some disks are waited for asleep, and so is whoever reads what is printed.
bool is_in_file(int thread) {
  const std::string line = line_of(thread, "syscall");  // "1 0x5 ...", "running"
  long call = -1;
  std::from_chars(line.data(), line.data() + line.size(), call);
  constexpr std::array<long, 8> kCalls = {SYS_read,   SYS_pread64, SYS_write,     SYS_pwrite64,
                                          SYS_writev, SYS_fsync,   SYS_fdatasync, SYS_close};
  return std::find(kCalls.begin(), kCalls.end(), call) != kCalls.end();
}

/// The helpers of all threads.
struct Helpers {
  std::mutex mutex;
  std::vector<Helper*> all;
};
Helpers& helpers() {
  static Helpers helpers;
  return helpers;
}

constexpr size_t kShown = 8;  ///< ranks that a message names

/// "1", "1 on HOST"
std::string name_of(const RankReport& report) {
  const char* const host = report.host.data();
  return fmt::format("{}{}{}", report.rank, *host ? " on " : "", host);
}

/// Joins parts with ", "; if there are many, only the first few.
std::string first_few(std::vector<std::string> parts) {
  if (parts.size() > kShown) {
    parts.resize(kShown);
    parts.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "rank 0 waits in all_reduce of 5 F32, rank 2 waits in barrier". Missing ranks are left out,
/// because their last report is old.
std::string waits_text(std::span<const RankReport> heard, std::span<const std::string> missing) {
  std::vector<std::string> parts;
  for (const RankReport& report : heard)
    if (report.waited > 0 && std::ranges::count(missing, name_of(report)) == 0)
      parts.push_back(fmt::format("rank {} waits in {}", name_of(report), report.call.data()));
  return first_few(std::move(parts));
}

}  // namespace

Pulse::Pulse() : thread_(::gettid()) { pthread_getcpuclockid(pthread_self(), &clock_); }

bool Pulse::beats() {
  bool any = beats_without_helpers();
  const std::lock_guard lock(helpers().mutex);
  for (Helper* helper : helpers().all)
    any = (helper->helped_ == thread_ && helper->pulse_.beats_without_helpers()) || any;
  return any;
}

bool Pulse::beats_without_helpers() {
  timespec used{};
  if (clock_gettime(clock_, &used) != 0) return true;
  const int64_t before = used_ns_;
  used_ns_ = used.tv_sec * 1'000'000'000 + used.tv_nsec;
  constexpr int64_t kLeast = 2'000'000;  // who only wakes up now and then needs less
  return used_ns_ - before >= kLeast || !sleeps(thread_) || is_in_file(thread_);
}

Helper::Helper(int helped) : helped_(helped) {
  const std::lock_guard lock(helpers().mutex);
  helpers().all.push_back(this);
}

Helper::~Helper() {
  const std::lock_guard lock(helpers().mutex);
  std::erase(helpers().all, this);
}

bool under_debugger() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word)
    if (word == "TracerPid:") return file >> word && word != "0";
  return false;
}

std::string seconds_text(const Patience& patience) {
  return fmt::format("{:.3g} s", static_cast<double>(patience.timeout().count()) / 1e3);
}

void RankReport::set_call(std::string_view text) {
  call = {};
  text.copy(call.data(), call.size() - 1);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(fmt::format("{}", rank));
  return first_few(std::move(names));
}

std::optional<std::string> reason_to_give_up(std::span<const RankReport> heard, int ranks,
                                             const Patience& patience) {
  const auto waits = [&](const RankReport& r) { return r.waited >= patience.looks; };
  if (patience.looks == 0 || std::ranges::none_of(heard, waits)) return std::nullopt;
  std::vector<std::string> missing;
  for (const RankReport& r : heard)
    if (!r.over && !r.debugged && r.unheard + r.silent >= patience.looks)
      missing.push_back(name_of(r));
  constexpr std::string_view kHint = "--timeout sets how long ranks wait";
  if (!missing.empty())
    return fmt::format("rank{} {} gave no sign of life for {}; {}; {}",
                       missing.size() == 1 ? "" : "s", first_few(missing), seconds_text(patience),
                       waits_text(heard, missing), kHint);
  const auto waits_or_is_gone = [&](const RankReport& r) { return r.over || waits(r); };
  if (std::ssize(heard) == ranks && std::ranges::all_of(heard, waits_or_is_gone))
    return fmt::format("the ranks wait for each other for {}: {}; {}", seconds_text(patience),
                       waits_text(heard, {}), kHint);
  return std::nullopt;
}

}  // namespace ladder
