// OutputFile: the old file stays until the new one is complete.

#include "common/output_file.h"

#include "tests/common/run_files.h"

namespace ladder {
namespace {

TEST(OutputFile, KeepsTheOldFileWithoutCommit) {
  const TempDir dir;
  write_file(dir / "out", "old");
  {
    OutputFile file(dir / "out", "--trace");
    file.write("half of the n");
    EXPECT_EQ(read_file(dir / "out"), "old");
  }
  EXPECT_EQ(files_in(dir.path()), (std::map<std::string, std::string>{{"out", "old"}}));
}

TEST(OutputFile, GrowsForThoseWhoFollowIt) {
  const TempDir dir;
  OutputFile file(dir / "out", "--trace");
  EXPECT_EQ(files_in(dir.path()), (std::map<std::string, std::string>{{"out.partial", ""}}));
  file.write("a line\n");
  file.flush();
  EXPECT_EQ(read_file(dir / "out.partial"), "a line\n");
  file.commit();
  EXPECT_EQ(files_in(dir.path()), (std::map<std::string, std::string>{{"out", "a line\n"}}));
}

TEST(OutputFile, KeepsItsPartWhereAsked) {
  const TempDir dir;
  write_file(dir / "out", "old");
  {
    OutputFile file(dir / "out", "--trace");
    file.write("half of the n");
    file.keep_partial();
  }
  EXPECT_EQ(files_in(dir.path()),
            (std::map<std::string, std::string>{{"out", "old"}, {"out.partial", "half of the n"}}));
}

// The part may be of a program that was killed. A run that is refused before its first line leaves
// the part as it is.
TEST(OutputFile, AnOldPartStaysUntilTheFirstWrite) {
  const TempDir dir;
  write_file(dir / "out.partial", "of an earlier run, and longer");
  { OutputFile file(dir / "out", "--trace"); }
  EXPECT_EQ(read_file(dir / "out.partial"), "of an earlier run, and longer");
  {
    OutputFile file(dir / "out", "--trace");
    file.keep_partial();
  }
  EXPECT_EQ(read_file(dir / "out.partial"), "of an earlier run, and longer");
  OutputFile file(dir / "out", "--trace");
  file.write("new");
  file.commit();
  EXPECT_EQ(files_in(dir.path()), (std::map<std::string, std::string>{{"out", "new"}}));
}

TEST(OutputFile, HasOneWriter) {
  const TempDir dir;
  OutputFile first(dir / "out", "--trace");
  EXPECT_USER_ERROR(OutputFile(dir / "out", "--trace"), "another program is writing");
  first.write("first");
  first.commit();
  OutputFile second(dir / "out", "--trace");
  second.write("second");
  EXPECT_EQ(read_file(dir / "out"), "first");
  second.commit();
  EXPECT_EQ(read_file(dir / "out"), "second");
}

TEST(OutputFile, FollowsASymbolicLink) {
  const TempDir dir;
  write_file(dir / "target", "old");
  std::filesystem::create_symlink(dir / "target", dir / "link");
  OutputFile file(dir / "link", "--trace");
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "target"), "new");
}

TEST(OutputFile, RefusesWhatCannotBeAFile) {
  const TempDir dir;
  write_file(dir / "file", "old");
  EXPECT_USER_ERROR(OutputFile(dir / "no/such/dir", "--trace"), "--trace");
  EXPECT_USER_ERROR(OutputFile(dir / "file/inside", "--trace"), "cannot be written");
  EXPECT_USER_ERROR(OutputFile(dir.path(), "--trace"), "not a file");
  EXPECT_USER_ERROR(OutputFile("/dev/null", "--trace"), "not a file");
  std::filesystem::create_symlink(dir / "file", dir / "out.partial");
  EXPECT_USER_ERROR(OutputFile(dir / "out", "--trace"), "symbolic links");
  EXPECT_EQ(read_file(dir / "file"), "old");
}

}  // namespace
}  // namespace ladder
