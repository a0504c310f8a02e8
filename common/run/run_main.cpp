#include "common/run/run_main.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

#include "common/comm/failure.h"
#include "common/comm/run_ranks.h"

namespace ladder {
namespace {

// Whoever starts the program may have closed one: the first file that it opens would take the
// number, and hold what is printed. open() takes the smallest number that is free.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
}

}  // namespace

int run_main(const std::function<void()>& body) {
  open_standard_streams();
  // A file that would outgrow `ulimit -f` is a write that fails, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    body();
    return 0;
  } catch (const HelpPrinted&) {
    return 0;
  } catch (...) {
    const Failure end = failure();
    if (end.status == 2 && launched_local_rank() != 0)
      std::this_thread::sleep_for(std::chrono::seconds(5));
    tell(end.line);
    return end.status;
  }
}

}  // namespace ladder
