// The main() of tests under mpirun: each process runs all tests, as one rank.

#include <cstdlib>

#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

Comm* world = nullptr;

}  // namespace

void on_ranks(const std::function<void(Comm&)>& body) {
  const std::unique_ptr<Comm> fresh = world->split(0, world->rank());
  body(*fresh);
}

std::string expected_kind(int) { return "mpi"; }

// srun --mpi=pmi2 says 0 to all. The GPU of a rank depends on it.
TEST(Neighbors, AreKnownWhateverTheLauncherSays) {
  ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
  EXPECT_EQ(launched_local_rank(), world->rank());
  EXPECT_EQ(launched_here(), world->size());
}

}  // namespace ladder::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int failed = 0;
  ladder::run_ranks(1, [&](ladder::Comm& comm) {
    ladder::test::world = &comm;
    failed = RUN_ALL_TESTS();
  });
  return failed;
}
