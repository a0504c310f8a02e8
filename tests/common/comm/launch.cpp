// What a launcher tells its processes in their environment.

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "common/comm/run_ranks.h"

namespace ladder::test {
namespace {

/// The environment gets these variables and no others of a launcher.
void set_launcher(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> names;
  for (char** at = environ; *at; ++at) names.push_back(std::string(*at, std::strchr(*at, '=')));
  for (const std::string& name : names)
    for (const char* prefix : {"OMPI_", "PMI", "MPI_", "SLURM_"})
      if (name.starts_with(prefix)) ::unsetenv(name.c_str());
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

/// What a process knows of those that were started with it.
struct Known {
  bool is_rank;
  int processes, here, rank, local_rank;
};
struct Case {
  const char* launcher;
  std::map<std::string, std::string> sets;
  Known known;
};
const Case kCases[] = {
    {"none", {}, {false, 1, 1, 0, 0}},
    {"Open MPI on two machines",
     {{"OMPI_COMM_WORLD_SIZE", "8"},
      {"OMPI_COMM_WORLD_RANK", "7"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}},
     {true, 8, 4, 7, 3}},
    {"a job script of Slurm", {{"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "2"}}, {false, 1, 1, 0, 0}},
    {"srun with PMIx on two machines",
     {{"SLURM_NTASKS", "8"},  // of the job; the step has more to say
      {"SLURM_STEP_NUM_TASKS", "16"},
      {"SLURM_STEP_NUM_NODES", "2"},
      {"SLURM_LOCALID", "2"},
      {"PMIX_RANK", "5"}},
     {true, 16, 8, 5, 2}},
    {"srun with PMI-2 on two machines",
     {{"PMI_SIZE", "16"},
      {"PMI_RANK", "13"},
      {"SLURM_STEP_NUM_TASKS", "16"},
      {"SLURM_STEP_NUM_NODES", "2"},
      {"SLURM_LOCALID", "5"}},
     {true, 16, 8, 13, 5}},
};

TEST(Launch, IsKnownByTheEnvironment) {
  for (const auto& [launcher, sets, known] : kCases) {
    SCOPED_TRACE(launcher);
    set_launcher(sets);
    EXPECT_EQ(under_mpirun(), known.is_rank);
    EXPECT_EQ(launched_processes(), known.processes);
    EXPECT_EQ(launched_here(), known.here);
    EXPECT_EQ(launched_rank(), known.rank);
    EXPECT_EQ(launched_local_rank(), known.local_rank);
    EXPECT_EQ(rank_name(5).starts_with("rank 5 on "), known.here < known.processes);
  }
  set_launcher({});
}

}  // namespace
}  // namespace ladder::test
