// run_main: what the main() of every program does with an exception.
#pragma once

#include <functional>

namespace ladder {

/// Thrown after --help was printed: the program is done, and nothing is wrong.
struct HelpPrinted {};

/// Runs `body`, and turns its end into an exit status. 0: done, or help. 2: bad input of the user,
/// or more than the machine can hold (one line "error: ..."). 1: anything else (one line "internal
/// error: ..."). A body that returns may have called end_with() (common/run/ending.h). Then the
/// status is 3 for a run that did not do what was asked, for example because of a full disk, and
/// 130 or 143 for a run that SIGINT or SIGTERM stopped.
///
/// If all processes of an mpirun refuse the same, it is printed once: rank 0 speaks first, and
/// mpirun ends the others while they wait. If only another process refuses something, it prints
/// this after the wait, with its rank and, if there are several machines, the name of its machine.
int run_main(const std::function<void()>& body);

}  // namespace ladder
