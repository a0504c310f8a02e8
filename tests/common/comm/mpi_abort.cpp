// A program in which one rank fails or does not come. mpi_abort.sh checks how the program ends.

#include <chrono>
#include <csignal>
#include <new>
#include <string>
#include <thread>

#include "common/comm/comm_queue.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "kernels/arena.h"

using namespace ladder;

namespace {

constexpr std::chrono::seconds kPatience(2);

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(kPatience);
}

/// What one rank, or each, does to the others.
void misbehave(Comm& comm, const std::string& how, const Tensor& data) {
  const bool is_one = comm.rank() == 1;
  if (is_one && how.starts_with("throw")) throw CheckError("the cause");
  if (is_one && how == "memory") throw std::bad_alloc();
  if (is_one && how == "killed") std::raise(SIGKILL);
  if (is_one && how.starts_with("stall")) sleep_for_ever();
  if (how == "user-error") throw UserError("no such\nfile");
  if (how.ends_with("receive")) comm.recv(data, (comm.rank() + 1) % comm.size());
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  const auto body = [&](Comm& comm) {
    Arena arena;
    const Tensor data = arena.zeros(Mem::Comm, "data", Dtype::F32, {100});
    if (how == "first stalls" && comm.rank() == 0) sleep_for_ever();
    if (how.starts_with("return") && comm.rank() != 1) return;
    if (how == "return, stall") sleep_for_ever();
    const std::unique_ptr<Comm> beside = comm.split(0, 0);
    CommQueue queue(*beside);
    // Only rank 1 does not come.
    Pending pending = queue.run([&] {
      if (comm.rank() != 1) beside->all_reduce(data);
    });
    misbehave(comm, how, data);
    pending.wait();
    comm.barrier();
  };
  // A process that never comes to the start of MPI. One that returned would sometimes be missed by
  // mpirun itself, which then ends all.
  if (how == "absent" && launched_rank() == 1) sleep_for_ever();
  run_ranks(1, body, kPatience);
}
