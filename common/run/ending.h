// Ends a run for reasons other than an exception: a signal asked it to stop, or it has not done all
// that was asked. What is known of that holds for the process, whose exit status it becomes.
#pragma once

#include <optional>
#include <string_view>

#include "common/comm/failure.h"

namespace ladder {

/// While one lives, the first SIGINT or SIGTERM does not end the process: stop_signal() tells of
/// it. The second ends it at once, and so does any while none lives. A signal that the process was
/// started to ignore stays ignored.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
};

/// The signal that came; 0: none.
int stop_signal();
/// "SIGTERM"
std::string_view signal_name(int signal);

/// All ranks have agreed to take no more step. What would keep them longer, such as the last
/// validation, is left out.
void stop();
bool stopping();

/// What run_main says and returns once its body has returned. Of ranks that are threads one has a
/// line to say.
void end_with(const Failure& end);
std::optional<Failure> ending();

/// As if nothing had been asked yet: run_main begins so.
void forget_ending();

}  // namespace ladder
