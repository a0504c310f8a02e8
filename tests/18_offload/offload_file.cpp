// The inputs of blocks in a file: they come back as they went; what a report predicts.
#include "chapters/18_offload/offload_file.h"

#include <cstdlib>
#include <optional>

#include "tests/common/programs.h"
#include "tests/common/run_files.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// Files in a folder that this process has open, whether or not they have a name.
int64_t open_files_in(const std::string& folder) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // the iterator's own
    const auto file = std::filesystem::read_symlink(entry.path(), closed);
    count += file.string().starts_with(folder + "/");
  }
  return count;
}

class Offload : public ::testing::Test {
 protected:
  Sandbox box{ref_kernels()};
  OffloadFile file{std::vector<bool>(5, true)};
};

TEST_F(Offload, WhatWasNotWrittenCannotBeRead) {
  const Tensor input = box.random({4, 5});
  EXPECT_USER_ERROR(file.read(Ctx{}, 0, input), "cannot read back the input of block 0");
  file.write(Ctx{}, 0, input);
  EXPECT_USER_ERROR(file.read(Ctx{}, 1, input), "cannot read back the input of block 1");
  file.read(Ctx{}, 0, input);  // and the file is as good as before
}

TEST_F(Offload, WhatIsNotNeededIsNotWritten) {
  OffloadFile some(std::vector<bool>{false, true});
  const Tensor input = box.random({4, 5});
  some.write(Ctx{}, 0, input);
  EXPECT_EQ(some.moved(), 0);
  some.write(Ctx{}, 1, input);
  EXPECT_EQ(some.moved(), 80);
}

/// TMPDIR of this process, as it was before when the test ends.
class NamedFolder : public ::testing::Test {
 protected:
  ~NamedFolder() override { set(before_); }
  static void set(const std::optional<std::string>& folder) {
    folder ? setenv("TMPDIR", folder->c_str(), /*overwrite=*/1) : unsetenv("TMPDIR");
  }

  TempDir home;

 private:
  const std::optional<std::string> before_ =
      std::getenv("TMPDIR") ? std::optional<std::string>(std::getenv("TMPDIR")) : std::nullopt;
};

TEST_F(NamedFolder, HoldsTheFileWhichHasNoName) {
  Sandbox box(ref_kernels());
  set(home.path());
  const int64_t before = open_files_in(home.path());
  OffloadFile file(std::vector<bool>{true});
  EXPECT_EQ(open_files_in(home.path()), before + 1);
  EXPECT_TRUE(files_in(home.path()).empty());
}

TEST_F(NamedFolder, IsTmpIfItHasNoName) {
  for (const std::optional<std::string>& folder : {std::optional<std::string>(), {""}}) {
    set(folder);
    EXPECT_NO_THROW(OffloadFile(std::vector<bool>{true}));
  }
}

class OffloadReport : public Programs {};

TEST_F(OffloadReport, PredictsNoPagesOfASkippedStep) {
  must_end_with(3);
  const std::string flags = "--precision fp16 --loss-scale 16777216 --offload optimizer --steps 2";
  const auto moved = report("18_offload", flags)["extra"]["offload"]["moved"];
  EXPECT_TRUE(moved["predicted"].is_null()) << moved;
}

}  // namespace
}  // namespace ladder::test
