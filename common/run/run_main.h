// run_main: what every program's main() does with an exception.
#pragma once

#include <functional>

namespace ladder {

/// Thrown once --help has been printed: the program is done, and nothing is wrong.
struct HelpPrinted {};

/// Runs `body` and turns how it ended into an exit status: 0 done or help, 2 bad input of the
/// user or more than the machine holds (one line "error: ..."), 1 anything else (one line "internal
/// error: ..."). A body that returns may still have called end_with() (common/run/ending.h): 3 for
/// a run that did not do what was asked, as for one that a full disk ends; 130 or 143 for one that
/// SIGINT or SIGTERM has stopped.
///
/// What all processes that mpirun has started refuse alike is told once: rank 0 speaks first, and
/// mpirun then ends the others while they wait. What one of the others alone refuses it tells after
/// that, with its rank and, where there are several machines, the name of its own.
int run_main(const std::function<void()>& body);

}  // namespace ladder
