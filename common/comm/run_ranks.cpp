#include "common/comm/run_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <thread>

#include "common/comm/rank_error.h"
#include "common/comm/self_comm.h"
#include "common/comm/thread_comm.h"
#include "common/error.h"

namespace ladder {
namespace {

void run_thread(const std::shared_ptr<ThreadGroup>& group, int rank, const RankBody& body) {
  ThreadWorld& world = group->world();
  world.enter(rank);
  try {
    ThreadComm comm(group, rank);
    body(comm);
  } catch (const Aborted&) {
    // A consequence: the rank that has the cause tells it.
  } catch (...) {
    const RankError error = rank_error(rank);
    const ThreadWorld::Lock lock = world.lock();
    world.fail(error.error, error.message);
  }
  world.leave(rank);
}

/// Ends the ranks that have been started: they would wait for the others for ever.
void fail_to_start(ThreadWorld& world, int ranks, size_t started) {
  const UserError error(
      "--ranks {}: only {} threads could be started; fewer --ranks, fewer --threads or a smaller "
      "`ulimit -s` (of at least 1024) take less",
      ranks, started);
  const ThreadWorld::Lock lock = world.lock();
  world.fail(std::make_exception_ptr(error), error.what());
}

/// Of the first of these variables that is there. `srun --mpi=pmix` tells by Slurm's own, which any
/// job script sees, too: they count only where PMIX_RANK says that srun has started this process.
int number_from(std::initializer_list<const char*> names, const char* slurm, int otherwise) {
  for (const char* name : names)
    if (const char* number = std::getenv(name)) return std::atoi(number);
  const char* number = std::getenv("PMIX_RANK") ? std::getenv(slurm) : nullptr;
  return number ? std::atoi(number) : otherwise;
}

}  // namespace

void run_threads(int ranks, const RankBody& body, std::chrono::milliseconds timeout) {
  CHECK(ranks >= 1, "{} ranks", ranks);
  if (ranks == 1) {
    SelfComm comm;
    return body(comm);
  }
  const auto world = std::make_shared<ThreadWorld>(ranks, Patience::of(timeout));
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  const auto group = std::make_shared<ThreadGroup>(world, members);
  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] { run_thread(group, rank, body); });
    } catch (const std::exception&) {  // the system's limit, or no memory for its stack
      fail_to_start(*world, ranks, threads.size());
    }
    world->wait_for_all(static_cast<int>(threads.size()));
  }
  world->rethrow();
}

bool under_mpirun() {
  // Open MPI and all that speak PMIx; MPICH and its relatives.
  return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK") || std::getenv("PMI_SIZE");
}

int launched_processes() {
  return std::max(1, number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, "SLURM_NTASKS", 1));
}

int launched_here() {
  const int all = launched_processes();
  const int here =
      number_from({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, "SLURM_NTASKS_PER_NODE", all);
  return std::clamp(here, 1, all);
}

int launched_rank() {
  return std::max(
      0, number_from({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, "SLURM_PROCID", 0));
}

int launched_local_rank() {
  return std::max(
      0, number_from({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}, "SLURM_LOCALID", 0));
}

void run_ranks(int ranks, const RankBody& body, std::chrono::milliseconds timeout) {
  under_mpirun() ? run_mpi(ranks, body, timeout) : run_threads(ranks, body, timeout);
}

}  // namespace ladder
