// Bad input that chapter 18 refuses, and folders without room.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadOffload : public Refusals {
 protected:
  /// The program in a folder for temporary files that is not there.
  Program nowhere() const { return {GetParam(), {"env", "TMPDIR=/nowhere"}}; }
  /// The program with room for small files alone: what moves more finds out when it does.
  Program cramped() const {
    return {GetParam(),
            {"bash", "-c", "export TMPDIR=/tmp; trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash"}};
  }
  Ended ended(const Program& program, const std::string& flags) const {
    Ended ended = run(program, small_run(flags));
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line: " << ended.err;
    return ended;
  }
};
INSTANTIATE_TEST_SUITE_P(Refuses, BadOffload, ::testing::Values("18_offload"), chapter_name);

// Ranks alone and together: what is wrong is the folder, and not --batch.
TEST_P(BadOffload, MappedFilesWithoutTheirFolder) {
  for (const std::string ranks : {"1", "2"})
    for (const auto& [program, says] :
         {std::pair{nowhere(), " bytes in /nowhere: No such file or directory"},
          {cramped(), " bytes in /tmp: File too large"}}) {
      const Ended end = ended(program, "--offload optimizer --ranks " + ranks);
      EXPECT_EQ(end.status, 2) << end.err;
      EXPECT_NE(end.err.find(std::string(says) + "; TMPDIR can name another folder\n"),
                std::string::npos)
          << end.err;
      EXPECT_NE(end.err.find("no temporary file of "), std::string::npos) << end.err;
      EXPECT_EQ(end.err.find("--batch"), std::string::npos) << end.err;
    }
}

TEST_P(BadOffload, InputsWithoutTheirFolder) {
  const Ended end = ended(nowhere(), "--recompute full --offload inputs");
  EXPECT_EQ(end.status, 2) << end.err;
  EXPECT_NE(end.err.find("cannot create a file in /nowhere: No such file"), std::string::npos)
      << end.err;
}

// Validation goes no way back: nobody would read what they wrote.
TEST_P(BadOffload, InputsWithoutRoomCannotTrainAndCanValidate) {
  const std::string flags = "--recompute full --offload inputs --steps ";
  EXPECT_EQ(run(cramped(), small_run(flags + "0")).status, 0);
  const Ended end = ended(cramped(), flags + "1");
  EXPECT_EQ(end.status, 2);
  EXPECT_NE(end.err.find("--offload inputs cannot write"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find(" bytes in /tmp: File too large; TMPDIR can name another folder"),
            std::string::npos)
      << end.err;
}

// Room for the files of no more than one block: a rank finds out when it moves the next one.
TEST_P(BadOffload, ARankWithoutRoomEndsTheOthers) {
  const std::string flags = "--ranks 4 --batch 8 --layers 4 --recompute full --offload inputs";
  train(GetParam(), flags);
  const Ended end = ended(cramped(), flags);
  EXPECT_EQ(end.status, 2) << end.err;
  EXPECT_TRUE(end.err.starts_with("error: rank ")) << end.err;
  EXPECT_NE(end.err.find(": --offload inputs cannot write"), std::string::npos) << end.err;
}

}  // namespace
}  // namespace ladder::test
