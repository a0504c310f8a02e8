// Ends a run for reasons other than an exception: a signal asked it to stop, or it did not do
// everything that was asked. The reasons belong to the process, and become its exit status.
#pragma once

#include <optional>
#include <string_view>

#include "common/comm/failure.h"

namespace ladder {

/// While one of these lives, the first SIGINT or SIGTERM does not end the process: stop_signal()
/// reports it. The second signal ends the process at once. While none lives, any signal does.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
};

/// The signal that came; 0 if none came.
int stop_signal();
/// "SIGTERM"
std::string_view signal_name(int signal);

/// All ranks have agreed to take no further step, because of this signal. What would take more
/// time, such as the last validation, is left out.
void stop(int signal);
/// That signal; 0 if there is none.
int stopped_by();
inline bool stopping() { return stopped_by() != 0; }

/// What run_main prints and returns when its body has returned. If ranks are threads, one of them
/// calls it.
void end_with(const Failure& end);
std::optional<Failure> ending();

/// Forgets everything recorded here. run_main begins with it.
void forget_ending();

}  // namespace ladder
