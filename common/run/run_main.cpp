#include "common/run/run_main.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "common/comm/failure.h"
#include "common/comm/run_ranks.h"
#include "common/run/ending.h"

namespace ladder {
namespace {

/// Whether everything printed has arrived. If the disk is full, it shows here, or earlier by an
/// exception.
bool output_is_written() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

/// How body() ended.
Failure end_of(const std::function<void()>& body) {
  try {
    body();
    return ending().value_or(Failure{.line = "", .status = 0});
  } catch (const HelpPrinted&) {
    return {.line = "", .status = 0};
  } catch (...) {
    const int rank = launched_rank();
    Failure end = failure();
    if (end.status != 2 || rank == 0) return end;
    // mpirun takes some time to end processes that MPI does not know yet.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    wait_for_turn(3 * std::max(0, launched_local_rank() - 1));
    // Rank 0 has not reported the same. So this process was started differently, or has other
    // files.
    return failure(rank);
  }
}

}  // namespace

int run_main(const std::function<void()>& body) {
  // If a file would grow beyond `ulimit -f`, or nobody reads a pipe any more, the write fails, as
  // on a full disk.
  for (const int signal : {SIGXFSZ, SIGPIPE}) std::signal(signal, SIG_IGN);
  forget_ending();
  Failure end = end_of(body);
  if (!output_is_written())
    end = {
        .line = "error: standard output cannot be written: is its disk full, or its reader gone?",
        .status = kNotDone};
  if (!end.line.empty()) tell(end.line);
  return end.status;
}

}  // namespace ladder
