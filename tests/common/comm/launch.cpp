// What a launcher tells its processes in their environment.

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "common/comm/run_ranks.h"

namespace ladder::test {
namespace {

/// The environment has these variables, and no other of a launcher's; afterwards as before.
class Launch : public ::testing::Test {
 protected:
  Launch() {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
  }
  ~Launch() override {
    for (const auto& [name, value] : before_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_RANK",
                                           "PMI_SIZE",
                                           "PMI_RANK",
                                           "MPI_LOCALNRANKS",
                                           "MPI_LOCALRANKID",
                                           "PMIX_RANK",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_STEP_NUM_NODES",
                                           "SLURM_LOCALID",
                                           "SLURM_PROCID"};
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(Launch, AProcessByItself) {
  EXPECT_FALSE(under_mpirun());
  EXPECT_EQ(launched_processes(), 1);
  EXPECT_EQ(launched_here(), 1);
  EXPECT_EQ(launched_local_rank(), 0);
}

TEST_F(Launch, OpenMpiOnTwoMachines) {
  set({{"OMPI_COMM_WORLD_SIZE", "8"},
       {"OMPI_COMM_WORLD_RANK", "7"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}});
  EXPECT_TRUE(under_mpirun());
  EXPECT_EQ(launched_processes(), 8);
  EXPECT_EQ(launched_here(), 4);
  EXPECT_EQ(launched_rank(), 7);
  EXPECT_EQ(launched_local_rank(), 3);
}

TEST_F(Launch, SlurmAloneIsAJobScript) {
  set({{"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "2"}});
  EXPECT_FALSE(under_mpirun());
  EXPECT_EQ(launched_processes(), 1);
  EXPECT_EQ(launched_local_rank(), 0);
  EXPECT_EQ(separate_tasks(), 1);
}

TEST_F(Launch, SrunWithPmixOnTwoMachines) {
  set({{"SLURM_NTASKS", "8"},  // of the job; the step has more to say
       {"SLURM_STEP_NUM_TASKS", "16"},
       {"SLURM_STEP_NUM_NODES", "2"},
       {"SLURM_LOCALID", "2"},
       {"PMIX_RANK", "5"}});
  EXPECT_TRUE(under_mpirun());
  EXPECT_EQ(launched_processes(), 16);
  EXPECT_EQ(launched_here(), 8);
  EXPECT_EQ(launched_rank(), 5);
  EXPECT_EQ(launched_local_rank(), 2);
  EXPECT_EQ(separate_tasks(), 1);
  EXPECT_TRUE(rank_name(5).starts_with("rank 5 on ")) << rank_name(5);
}

TEST_F(Launch, SrunWithPmi2OnTwoMachines) {
  set({{"PMI_SIZE", "16"},
       {"PMI_RANK", "13"},
       {"SLURM_STEP_NUM_TASKS", "16"},
       {"SLURM_STEP_NUM_NODES", "2"},
       {"SLURM_LOCALID", "5"}});
  EXPECT_EQ(launched_here(), 8);
  EXPECT_EQ(launched_local_rank(), 5);
}

TEST_F(Launch, SrunWithoutPmiStartsCopies) {
  set({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}});
  EXPECT_FALSE(under_mpirun());
  EXPECT_EQ(separate_tasks(), 2);
}

}  // namespace
}  // namespace ladder::test
