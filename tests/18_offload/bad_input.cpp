// Folders for temporary files that are not there, or without room.
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

const std::string kChapter = "18_offload";

class BadOffload : public Programs {
 protected:
  /// The program in a folder for temporary files that is not there.
  const Program nowhere{kChapter, {"env", "TMPDIR=/nowhere"}};
  /// The program with room for small files alone: what moves more finds out when it does.
  const Program cramped{
      kChapter,
      {"bash", "-c", "export TMPDIR=/tmp; trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash"}};

  /// One line with all of `says`: what is wrong is the folder, and not --batch.
  void refused(const Program& program, const std::string& flags,
               const std::vector<std::string>& says) const {
    const auto [status, out, line] = run(program, small_run(flags));
    EXPECT_EQ(status, 2) << line;
    EXPECT_EQ(line.find('\n'), line.size() - 1) << "not one line: " << line;
    EXPECT_EQ(line.find("--batch"), std::string::npos) << line;
    for (const std::string& part : says) EXPECT_NE(line.find(part), std::string::npos) << line;
  }
};

TEST_F(BadOffload, MappedFilesWithoutTheirFolder) {
  const std::string end = "; TMPDIR can name another folder\n";
  for (const std::string ranks : {"1", "2"}) {
    const std::string flags = "--offload optimizer --ranks " + ranks;
    refused(nowhere, flags,
            {"no temporary file of ", " bytes in /nowhere: No such file or directory" + end});
    refused(cramped, flags, {"no temporary file of ", " bytes in /tmp: File too large" + end});
  }
}

TEST_F(BadOffload, InputsWithoutTheirFolder) {
  refused(nowhere, "--recompute full --offload inputs",
          {"cannot create a file in /nowhere: No such file", "TMPDIR can name another"});
}

// Validation goes no way back: nobody would read what they wrote.
TEST_F(BadOffload, InputsWithoutRoomCannotTrainAndCanValidate) {
  const std::string flags = "--recompute full --offload inputs --steps ";
  EXPECT_EQ(run(cramped, small_run(flags + "0")).status, 0);
  refused(cramped, flags + "1",
          {"--offload inputs cannot write",
           " bytes in /tmp: File too large; TMPDIR can name another folder"});
}

// Room for the files of no more than one block: a rank finds out when it moves the next one.
TEST_F(BadOffload, ARankWithoutRoomEndsTheOthers) {
  const std::string flags = "--ranks 4 --batch 8 --layers 4 --recompute full --offload inputs";
  train(kChapter, flags);
  refused(cramped, flags, {"error: rank ", ": --offload inputs cannot write"});
}

}  // namespace
}  // namespace ladder::test
