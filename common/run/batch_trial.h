// Which batch fits: a run that finds too little memory on its device is started again with smaller
// ones, each as far as its memory. What fits is what was tried, not what a formula says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/comm/comm.h"

namespace ladder {

/// What a trial changes: the flag that says how many sequences are in memory at once, and its
/// value. CommandLine tells of each command line. Returns the value to take: the given one, unless
/// this is a trial.
int64_t trial_batch(const char* flag, int64_t given);

/// open_device() tells that memory is that of a device. The host has a message of its own, and
/// would fill the memory of each trial.
void memory_is_of_device();

/// RunLog tells that all memory of the run is there. @throws UserError in a trial, which ends here
/// @param comm of all ranks, which a trial waits for; null: this rank is alone
void memory_is_there(Comm* comm);

/// After body() has found too little memory, the end of that message: ": --micro-batch 32 fits".
/// Empty where no trial can tell: on the host, under mpirun, or after a first step.
std::string batch_that_fits(const std::function<void()>& body);

}  // namespace ladder
