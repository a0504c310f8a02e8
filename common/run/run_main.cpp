#include "common/run/run_main.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string_view>
#include <thread>
#include <unistd.h>

#include <sys/resource.h>

#include "common/comm/failure.h"
#include "common/comm/rank_error.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/run/batch_trial.h"
#include "common/run/ending.h"
#include "kernels/check.h"

namespace ladder {
namespace {

// Whoever starts the program may have closed one: the first file that it opens would take the
// number, and hold what is printed. open() takes the smallest number that is free.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
}

/// Whether all that was printed has arrived. On a full disk it shows here, or earlier by an
/// exception.
bool output_is_written() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

/// A thread has as much stack as this limit says, and one that needs more ends in a signal.
void require_stack() {
  constexpr rlim_t kLeast = 1024;  // KiB; the products of `cpu` take about 400
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur / 1024 < kLeast)
    throw UserError("`ulimit -s` is {} KiB of stack; at least {} are legal", stack.rlim_cur / 1024,
                    kLeast);
}

/// The first of them says it for all.
void warn_of_copies() {
  const char* const task = std::getenv("SLURM_PROCID");
  if (separate_tasks() == 1 || !task || std::string_view(task) != "0") return;
  tell(fmt::format(
      "warning: srun has started {} tasks that do not know of each other, and each is a whole run; "
      "with `srun --mpi=pmix` they are the ranks of one run",
      separate_tasks()));
}

/// body(), which may end early because help was all that was wanted.
void run_until_help(const std::function<void()>& body) {
  try {
    body();
  } catch (const HelpPrinted&) {
  }
}

/// Whether the exception in flight says that memory was too little.
bool is_out_of_memory() {
  try {
    throw;
  } catch (const OutOfMemory&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

int run_main(const std::function<void()>& body) {
  open_standard_streams();
  // A file that would outgrow `ulimit -f` is a write that fails, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  forget_ending();
  const Failure lost{"error: standard output cannot be written: is its disk full?", kNotDone};
  try {
    warn_of_copies();
    require_stack();
    run_until_help(body);
    const Failure end = output_is_written() ? ending().value_or(Failure{"", 0}) : lost;
    if (!end.line.empty()) tell(end.line);
    return end.status;
  } catch (...) {
    const bool written = output_is_written();
    Failure end = written ? failure() : lost;
    if (written && is_out_of_memory()) end.line += batch_that_fits(body);
    if (end.status == 2 && launched_rank() != 0) {
      // mpirun takes its time to end processes that MPI does not know yet.
      std::this_thread::sleep_for(std::chrono::seconds(5));
      wait_for_turn(3 * std::max(0, launched_local_rank() - 1));
      // Rank 0 has not said the same: this one was started differently, or has other files.
      if (written) end = failure_of(launched_rank());
    }
    tell(end.line);
    return end.status;
  }
}

}  // namespace ladder
