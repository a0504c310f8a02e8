#include "common/comm/run_ranks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <span>
#include <thread>
#include <unistd.h>

#include "common/comm/failure.h"
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
    // A consequence. The rank that has the cause reports it.
  } catch (...) {
    const Failure end = failure(rank);
    const ThreadWorld::Lock lock = world.lock();
    world.fail(end);
  }
  world.leave(rank);
}

/// Ends the ranks that were started, because they would wait for the others forever.
void fail_to_start(ThreadWorld& world, int ranks, size_t started) {
  const ThreadWorld::Lock lock = world.lock();
  world.fail({fmt::format("error: --ranks {}: only {} threads could be started; fewer --ranks, "
                          "fewer --threads or a smaller `ulimit -s` (of at least 1024) take less",
                          ranks, started),
              2});
}

/// The number in the first of these variables that exists.
std::optional<int> number_from(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* number = std::getenv(name)) return std::atoi(number);
  return std::nullopt;
}

/// The environment of every job script has Slurm's variables. They count only if srun started this
/// process as a rank, by PMIx or PMI.
std::optional<int> number_from_srun(std::initializer_list<const char*> names) {
  const bool is_rank = number_from({"PMIX_RANK", "PMI_RANK"}).has_value();
  return is_rank ? number_from(names) : std::nullopt;
}

std::optional<Neighbors>& neighbors() {
  static std::optional<Neighbors> known;
  return known;
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
  // Open MPI and everything that uses PMIx; MPICH and its relatives.
  return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK") || std::getenv("PMI_SIZE");
}

int launched_processes() {
  const auto mpirun = number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  const auto srun = number_from_srun({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  return std::max(1, mpirun.value_or(srun.value_or(1)));
}

int launched_rank() {
  const auto mpirun = number_from({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
  return std::max(0, mpirun.value_or(0));
}

int launched_here() {
  if (neighbors()) return neighbors()->ranks;
  const int all = launched_processes();
  const auto mpirun = number_from({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  const int machines = std::max(1, number_from_srun({"SLURM_STEP_NUM_NODES"}).value_or(1));
  return std::clamp(mpirun.value_or((all + machines - 1) / machines), 1, all);
}

int launched_local_rank() {
  if (neighbors()) return neighbors()->rank;
  const auto mpirun = number_from({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"});
  return std::max(0, mpirun.value_or(number_from_srun({"SLURM_LOCALID"}).value_or(0)));
}

void set_neighbors(const Neighbors& known) { neighbors() = known; }

std::string machine_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string host_name() { return launched_processes() == launched_here() ? "" : machine_name(); }

std::string rank_name(int rank) {
  const std::string host = host_name();
  return fmt::format("rank {}{}{}", rank, host.empty() ? "" : " on ", host);
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kShown = 8;
  const bool all = ranks.size() <= kShown;
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s",
                     fmt::join(std::span(ranks).first(all ? ranks.size() : kShown), ", "),
                     all ? "" : ", ...");
}

void run_ranks(int ranks, const RankBody& body, std::chrono::milliseconds timeout) {
  under_mpirun() ? run_mpi(ranks, body, timeout) : run_threads(ranks, body, timeout);
}

}  // namespace ladder
