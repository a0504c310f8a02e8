// 27_data_order with processes as ranks, under mpirun. Their bits: ../layouts.txt.
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

using DataOrderProcesses = Programs;

// Each rank in a directory of its own, as on machines without a common disk.
TEST_F(DataOrderProcesses, RefuseToSeeOtherFiles) {
  for (const std::string rank : {"0", "1"}) {
    std::filesystem::create_directory(path(rank));
    write(rank + "/text.txt", read("text.txt"));
    write(rank + "/source.txt", "rank " + rank + read("text.txt"));
  }
  Program program = under_mpirun("27_data_order", 2);
  for (const std::string word : {"sh", "-c", "cd $OMPI_COMM_WORLD_RANK && exec \"$@\"", "sh"})
    program.launcher.push_back(word);
  const std::string flags = "--batch 8 --documents --end-of-text 10 --sources source.txt:1";
  const Ended ended = run(program, small_run(flags));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_NE(ended.err.find("the content of --sources source.txt is 1 file, "), std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("on rank 1; legal is the same on every rank"), std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace ladder::test
