// run_main: what every program's main() does with an exception.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "kernels/check.h"

namespace ladder {

/// Thrown once --help has been printed: the program is done, and nothing is wrong.
struct HelpPrinted {};

/// A message may quote a path or a flag with anything in it.
inline std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return text;
}

/// Runs `body` and turns how it ended into an exit status: 0 done or help, 2 bad input of the
/// user or more than the machine holds (one line "error: ..."), 1 anything else (one line "internal
/// error: ...").
///
/// What all processes that mpirun has started on a machine refuse alike is told once: the first of
/// them speaks first, and mpirun then ends the others while they wait.
template <class Body>
int run_main(Body&& body) {
  try {
    body();
    return 0;
  } catch (const HelpPrinted&) {
    return 0;
  } catch (const UserError& e) {
    if (launched_local_rank() != 0) std::this_thread::sleep_for(std::chrono::seconds(5));
    fmt::print(stderr, "error: {}\n", one_line(e.what()));
    return 2;
  } catch (const OutOfMemory& e) {
    fmt::print(stderr,
               "error: {}; a smaller --batch, --micro-batch (from chapter 04 on), --seq-len or "
               "--model takes less\n",
               one_line(e.what()));
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "internal error: {}\n", one_line(e.what()));
  } catch (...) {
    fmt::print(stderr, "internal error: an exception of unknown type\n");
  }
  return 1;
}

}  // namespace ladder
