// The inputs of blocks in a file: they come back as they went.
#include "chapters/18_offload/offload_file.h"

#include <cstdlib>
#include <optional>

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

TEST_F(Offload, ComesBackBitForBit) {
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
    std::vector<Tensor> inputs;
    for (int64_t l = 0; l < 5; ++l) {
      inputs.push_back(box.random(dtype, {2, 3, 7}));
      file.write(Ctx{}, l, inputs.back());
    }
    for (const int64_t l : {4, 3, 0, 2, 1, 2}) {  // in any order, and more than once
      const Tensor back = box.empty(dtype, {2, 3, 7});
      file.read(Ctx{}, l, back);
      EXPECT_TRUE(same_bits(back, inputs[static_cast<size_t>(l)])) << l;
    }
  }
}

TEST_F(Offload, ALaterWriteWins) {
  const Tensor first = box.random({4, 5}), second = box.random({4, 5}), back = box.empty({4, 5});
  for (const Tensor& input : {first, second}) {
    file.write(Ctx{}, 0, first);
    file.write(Ctx{}, 1, input);
    file.read(Ctx{}, 1, back);
    EXPECT_TRUE(same_bits(back, input));
    file.read(Ctx{}, 0, back);
    EXPECT_TRUE(same_bits(back, first));
  }
}

TEST_F(Offload, CountsWhatItMoves) {
  const Tensor input = box.random({4, 5});
  EXPECT_EQ(file.moved(), 0);
  file.write(Ctx{}, 0, input);
  file.write(Ctx{}, 1, input);
  EXPECT_EQ(file.moved(), 2 * 80);
  file.read(Ctx{}, 1, input);
  EXPECT_EQ(file.moved(), 3 * 80);
  file.begin_step();
  EXPECT_EQ(file.moved(), 0);
}

TEST_F(Offload, WhatWasNotWrittenCannotBeRead) {
  const Tensor input = box.random({4, 5});
  EXPECT_USER_ERROR(file.read(Ctx{}, 0, input), "cannot read back the input of block 0");
  file.write(Ctx{}, 0, input);
  EXPECT_USER_ERROR(file.read(Ctx{}, 1, input), "cannot read back the input of block 1");
  file.read(Ctx{}, 0, input);  // and the file is as good as before
}

// The last segment is still there when backward begins.
TEST(InputsNeeded, AreThoseThatSegmentsAreComputedFrom) {
  using Needed = std::vector<bool>;
  const auto of = [](const char* policy, int64_t L) {
    return inputs_needed(Recompute(policy, L), L);
  };
  EXPECT_EQ(of("full", 3), (Needed{true, true, false}));
  EXPECT_EQ(of("every:2", 5), (Needed{true, false, true, false, false}));
  EXPECT_EQ(of("every:3", 6), (Needed{true, false, false, false, false, false}));
  for (const char* policy : {"none", "selective", "every:4"})
    EXPECT_EQ(of(policy, 4), Needed(4, false)) << policy;
}

TEST_F(Offload, WhatIsNotNeededIsNotWritten) {
  OffloadFile some(std::vector<bool>{false, true});
  const Tensor input = box.random({4, 5});
  some.write(Ctx{}, 0, input);
  EXPECT_EQ(some.moved(), 0);
  some.write(Ctx{}, 1, input);
  EXPECT_EQ(some.moved(), 80);
}

TEST(OffloadOff, DoesNothing) {
  Sandbox box(ref_kernels());
  OffloadFile file(std::vector<bool>{});
  const Tensor input = box.random({4, 5}), before = box.copy(input);
  file.write(Ctx{}, 0, input);
  file.read(Ctx{}, 3, input);
  EXPECT_TRUE(same_bits(input, before));
  EXPECT_EQ(file.moved(), 0);
}

/// TMPDIR of this process, as it was before when the test ends.
class NamedFolder : public ::testing::Test {
 protected:
  ~NamedFolder() override { set(before_); }
  static void set(const std::optional<std::string>& folder) {
    folder ? setenv("TMPDIR", folder->c_str(), /*overwrite=*/1) : unsetenv("TMPDIR");
  }
  /// The folder in which an OffloadFile fails, as it says.
  static std::string fails_in() {
    return user_error([&] { OffloadFile(std::vector<bool>{true}); });
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

TEST_F(NamedFolder, ThatIsNoneIsRefused) {
  set(home / "missing");
  EXPECT_NE(fails_in().find("cannot create a file in " + home.path() + "/missing: No such file"),
            std::string::npos)
      << fails_in();
  EXPECT_NE(fails_in().find("TMPDIR can name another"), std::string::npos) << fails_in();
  for (const std::optional<std::string>& folder : {std::optional<std::string>(), {""}}) {
    set(folder);
    EXPECT_EQ(fails_in(), "") << "/tmp";
  }
}

}  // namespace
}  // namespace ladder::test
