#include "common/comm/pulse.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <pthread.h>
#include <string>
#include <unistd.h>

#include <sys/syscall.h>

namespace ladder {
namespace {

/// The first line of a /proc file of a thread of this process; empty if there is none.
std::string line_of(int thread, const char* file) {
  std::ifstream stream("/proc/self/task/" + std::to_string(thread) + "/" + file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// Whether the thread sleeps. False if it runs or would run if a core were free ('R'), waits for a
/// disk ('D'), or is held by a debugger ('t'). False, too, if the system does not tell.
bool sleeps(int thread) {
  const std::string line = line_of(thread, "stat");
  const size_t name_end = line.rfind(')');  // the name may contain anything
  return name_end != std::string::npos && line.substr(name_end).starts_with(") S");
}

/// Whether the thread waits for a file. Some disks let it sleep meanwhile, and so does a slow
/// reader of output.
bool is_in_file(int thread) {
  const std::string line = line_of(thread, "syscall");  // "1 0x5 ...", "running"
  long call = -1;
  std::from_chars(line.data(), line.data() + line.size(), call);
  constexpr std::array<long, 8> kCalls = {SYS_read,   SYS_pread64, SYS_write,     SYS_pwrite64,
                                          SYS_writev, SYS_fsync,   SYS_fdatasync, SYS_close};
  return std::find(kCalls.begin(), kCalls.end(), call) != kCalls.end();
}

}  // namespace

Pulse::Pulse() : thread_(::gettid()) { pthread_getcpuclockid(pthread_self(), &clock_); }

bool Pulse::beats() {
  timespec used{};
  if (clock_gettime(clock_, &used) != 0) return true;
  const int64_t before = used_ns_;
  used_ns_ = used.tv_sec * 1'000'000'000 + used.tv_nsec;
  constexpr int64_t kLeast = 2'000'000;  // a thread that only wakes up now and then needs less
  return used_ns_ - before >= kLeast || !sleeps(thread_) || is_in_file(thread_);
}

bool under_debugger() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word)
    if (word == "TracerPid:") return file >> word && word != "0";
  return false;
}

}  // namespace ladder
