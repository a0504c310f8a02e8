#include "common/run/ending.h"

#include <atomic>
#include <csignal>
#include <mutex>

namespace ladder {
namespace {

// Ranks that are threads share these. A signal handler may use only the atomic ones.
std::mutex mutex;
int watchers = 0;  ///< how many StopSignals live
std::optional<Failure> end_of_run;
std::atomic<int> received = 0;
std::atomic<int> agreed = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void handle_signals(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, handler);
}

extern "C" void on_signal(int signal) {
  received = signal;
  handle_signals(SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  const std::scoped_lock lock(mutex);
  if (watchers++ == 0) handle_signals(on_signal);
}

StopSignals::~StopSignals() {
  const std::scoped_lock lock(mutex);
  if (--watchers == 0) handle_signals(SIG_DFL);
}

int stop_signal() { return received; }

std::string_view signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

void stop(int signal) { agreed = signal; }
int stopped_by() { return agreed; }

void end_with(const Failure& end) {
  const std::scoped_lock lock(mutex);
  if (!end_of_run || !end.line.empty()) end_of_run = end;
}

std::optional<Failure> ending() {
  const std::scoped_lock lock(mutex);
  return end_of_run;
}

void forget_ending() {
  const std::scoped_lock lock(mutex);
  received = 0;
  agreed = 0;
  end_of_run.reset();
}

}  // namespace ladder
