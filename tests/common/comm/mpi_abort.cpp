// A program of which one rank fails: mpi_abort.sh looks at how it ends.

#include <csignal>
#include <new>
#include <string>

#include "common/comm/comm_queue.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "kernels/arena.h"

using namespace ladder;

int main(int, char** argv) {
  const std::string how = argv[1];
  run_ranks(1, [&](Comm& comm) {
    Arena arena;
    const Tensor data = arena.zeros(Mem::Comm, "data", Dtype::F32, {100});
    const std::unique_ptr<Comm> beside = comm.split(0, 0);
    CommQueue queue(*beside);
    // Only rank 1 does not come.
    Pending pending = queue.run([&] {
      if (comm.rank() != 1) beside->all_reduce(data);
    });
    if (comm.rank() == 1 && how.starts_with("throw")) throw CheckError("the cause");
    if (comm.rank() == 1 && how == "memory") throw std::bad_alloc();
    if (how == "user-error") throw UserError("no such\nfile");
    if (comm.rank() == 1 && how == "killed") std::raise(SIGKILL);
    if (how == "disagree") comm.all_reduce(comm.rank() == 2 ? data.first(99) : data);
    if (how == "throw, receive") comm.recv(data, 1);
    pending.wait();
    comm.barrier();
  });
}
