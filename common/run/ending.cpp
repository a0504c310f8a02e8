#include "common/run/ending.h"

#include <array>
#include <atomic>
#include <csignal>
#include <map>
#include <mutex>
#include <unistd.h>

#include <fmt/format.h>

namespace ladder {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

/// Ranks that are threads share it.
struct Shared {
  std::mutex mutex;
  int watchers = 0;  ///< StopSignals that live
  std::map<std::string, std::string> not_done;
  std::optional<Failure> ending;
};

Shared& shared() {
  static Shared shared;
  return shared;
}

// What a handler may touch. The lines are there before at_once is true.
std::array<std::string, kSignals.size()> lines;
std::atomic<bool> at_once = false;
std::atomic<int> received = 0;
std::atomic<bool> agreed = false;
static_assert(std::atomic<int>::is_always_lock_free);

void handle(int signal, void (*handler)(int)) {
  struct sigaction now = {};
  ::sigaction(signal, nullptr, &now);
  if (now.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // reads and writes do not notice
  ::sigaction(signal, &action, nullptr);
}

extern "C" void on_signal(int signal) {
  if (at_once) {
    const std::string& line = lines[signal == kSignals[0] ? 0 : 1];
    // Nobody is left to tell of a stderr that cannot be written.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(128 + signal);
  }
  received = signal;
  for (const int each : kSignals) handle(each, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  const std::scoped_lock lock(shared().mutex);
  if (shared().watchers++ > 0) return;
  for (const int signal : kSignals) handle(signal, on_signal);
}

StopSignals::~StopSignals() {
  const std::scoped_lock lock(shared().mutex);
  if (--shared().watchers > 0) return;
  for (const int signal : kSignals) handle(signal, SIG_DFL);
  at_once = false;
}

void StopSignals::end_at_once(const std::string& rest) {
  const std::scoped_lock lock(shared().mutex);
  if (at_once) return;
  for (size_t i = 0; i < lines.size(); ++i)
    lines[i] =
        rest.empty() ? "" : fmt::format("interrupted: {}{}\n", signal_name(kSignals[i]), rest);
  at_once = true;
}

int stop_signal() { return received; }

std::string_view signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

void stop() { agreed = true; }
bool stopping() { return agreed; }

void not_done(const std::string& what, const std::string& reason) {
  const std::scoped_lock lock(shared().mutex);
  shared().not_done.emplace(what, reason);
}

std::string reasons_not_done() {
  const std::scoped_lock lock(shared().mutex);
  std::string all;
  for (const auto& [what, reason] : shared().not_done) all += (all.empty() ? "" : "; ") + reason;
  return all;
}

bool is_done(const std::string& what) {
  const std::scoped_lock lock(shared().mutex);
  return !shared().not_done.contains(what);
}

void end_with(const Failure& end) {
  const std::scoped_lock lock(shared().mutex);
  if (!shared().ending || !end.line.empty()) shared().ending = end;
}

std::optional<Failure> ending() {
  const std::scoped_lock lock(shared().mutex);
  return shared().ending;
}

void forget_ending() {
  const std::scoped_lock lock(shared().mutex);
  received = 0;
  agreed = false;
  shared().not_done.clear();
  shared().ending.reset();
}

}  // namespace ladder
