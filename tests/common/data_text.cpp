// Text as data: what is held out, what is refused, and that a batch depends on counters alone.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "common/data/text.h"
#include "common/error.h"
#include "kernels/kernels.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

constexpr int64_t kT = 8;

/// A file whose byte at i is i mod 251: each sequence tells where it starts.
class TextTest : public testing::Test {
 protected:
  Text write(int64_t size) {
    std::ofstream file(path_, std::ios::binary);
    for (int64_t i = 0; i < size; ++i) file.put(static_cast<char>(i % 251));
    file.close();
    return Text(path_, kT);
  }
  Batch batch(int64_t B) { return alloc_batch(arena_, B, kT); }

  static std::vector<int32_t> values(Tensor t) {
    return {t.data<int32_t>(), t.data<int32_t>() + t.size()};
  }

  TempDir dir_;
  std::string path_ = dir_ / "text";
  Arena arena_;
};

TEST_F(TextTest, HoldsTheLastTenthOut) {
  const Text text = write(1005);
  EXPECT_EQ(text.train().size(), 905u);
  EXPECT_EQ(text.held_out().size(), 100u);
  EXPECT_EQ(text.held_out()[0], 905 % 251);
}

TEST_F(TextTest, RefusesWhatMemoryDoesNotHold) {
  write(90);
  std::filesystem::resize_file(path_, uintmax_t{5} << 40);  // takes no disk
  try {
    const Text text(path_, kT);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(path_ + ": 5497558138880 bytes, but the machine has "),
              std::string::npos)
        << error.what();
  }
}

TEST_F(TextTest, RefusesWhatIsTooShort) {
  EXPECT_THROW(write(0), UserError);
  EXPECT_THROW(write(89), UserError);
  EXPECT_NO_THROW(write(90));
  EXPECT_THROW(Text(path_ + ".none", kT), UserError);
}

TEST_F(TextTest, TargetsAreTheNextTokens) {
  const Text text = write(2000);
  const Batch b = batch(5);
  text.draw(b, 1, 0);
  const auto tokens = values(b.tokens), targets = values(b.targets);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(targets[i], (tokens[i] + 1) % 251);
  EXPECT_EQ(count_targets(b), 5 * kT);
  b.targets.data<int32_t>()[3] = kIgnore;
  EXPECT_EQ(count_targets(b), 5 * kT - 1);
}

TEST_F(TextTest, ValidationOfALongTextStopsAtAbout65536Tokens) {
  EXPECT_EQ(write(1'000'000).validation_count(), 65536 / kT);
  EXPECT_EQ(write(1000).validation_count(), 99 / kT);
}

// A rank draws its share alone: sequence i is the same wherever it is drawn.
TEST_F(TextTest, SequencesAreKeyedByTheirIndex) {
  const Text text = write(2000);
  const Batch whole = batch(6), part = batch(2);
  text.draw(whole, 1, 3);
  text.draw(part, 1, 3, /*first=*/4);
  EXPECT_EQ(values(part.tokens), values(whole.slice(4, 2).tokens));
  text.draw(part, 1, 4, 4);
  EXPECT_NE(values(part.tokens), values(whole.slice(4, 2).tokens));
  text.draw(part, 2, 3, 4);
  EXPECT_NE(values(part.tokens), values(whole.slice(4, 2).tokens));
}

// The shortest text has 73 places to start: from one more the last target would be held out.
TEST_F(TextTest, DrawsStayInTheTrainingPart) {
  const Text text = write(90);  // 81 bytes to train on
  const Batch b = batch(64);
  for (int64_t step = 0; step < 50; ++step) {
    text.draw(b, 1, step);
    const auto targets = values(b.targets);
    ASSERT_LE(*std::max_element(targets.begin(), targets.end()), 80);
  }
}

TEST_F(TextTest, ValidationWindowsDoNotOverlap) {
  for (int64_t size : {90, 1000, 20000}) {
    const Text text = write(size);
    const int64_t count = text.validation_count();
    ASSERT_GE(count, 1);
    const Batch b = batch(count);
    text.draw_validation(b, 0);
    const auto held_out = text.held_out();
    int64_t from = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto tokens = values(b.slice(i, 1).tokens), targets = values(b.slice(i, 1).targets);
      const auto at =
          std::search(held_out.begin() + from, held_out.end(), tokens.begin(), tokens.end());
      ASSERT_NE(at, held_out.end()) << "window " << i << " of " << size;
      from = at - held_out.begin() + kT;
      ASSERT_LT(from, static_cast<int64_t>(held_out.size()));
      EXPECT_EQ(targets.back(), held_out[static_cast<size_t>(from)]);
    }
  }
}

}  // namespace
}  // namespace ladder
