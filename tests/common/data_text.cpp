// Text as data: what is held out, what is refused, and that a batch depends on counters alone.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "common/data/text.h"
#include "kernels/kernels.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

constexpr int64_t kT = 8;

/// The most memory that this process has had.
int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

/// Byte i of the file is i mod 251. So a sequence shows where it starts.
class TextTest : public testing::Test {
 protected:
  Text write(int64_t size) {
    std::ofstream file(path_, std::ios::binary);
    for (int64_t i = 0; i < size; ++i) file.put(static_cast<char>(i % 251));
    file.close();
    return Text(options());
  }
  TextOptions options() const { return {.path = path_, .seq_len = kT, .vocab = 256}; }
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
  const Batch b = batch(1);
  text.draw_validation(b, 0);
  EXPECT_EQ(values(b.tokens)[0], 905 % 251);
}

// Sequences are read as they are drawn, so that a text of any size takes no memory.
TEST_F(TextTest, TakesNoMemory) {
  write(90);
  const int64_t size = int64_t{5} << 40;
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(size));  // takes no disk
  const int64_t before = peak_bytes();
  const Text text(options());
  const Batch b = batch(64);
  for (int64_t step = 0; step < 50; ++step) text.draw(b, 1, step);
  text.draw_validation(b, 0);
  EXPECT_LT(peak_bytes() - before, 8 << 20);
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

// Token i stands for i bytes here.
TEST_F(TextTest, CountsTheBytesOfTargets) {
  std::string numbers;  // of two bytes
  for (int i = 0; i < 1000; ++i) numbers += {static_cast<char>(i % 251), '\0'};
  write_file(path_, numbers);
  std::vector<int32_t> bytes(251);
  std::iota(bytes.begin(), bytes.end(), 0);
  TextOptions counted = options();
  counted.format.width = 2;
  counted.token_bytes = std::make_shared<const std::vector<int32_t>>(bytes);
  const Text text(counted);
  const auto expect = [&](const TargetCount& count, const Batch& b) {
    const auto targets = values(b.targets);
    EXPECT_EQ(count.targets, std::ssize(targets));
    EXPECT_EQ(count.bytes, std::accumulate(targets.begin(), targets.end(), 0));
  };
  const Batch b = batch(6), all = batch(text.validation_count());
  text.draw(b, 1, 3);
  text.draw_validation(all, 0);
  expect(text.step_targets(1, 3, 6), b);
  expect(text.validation_targets(), all);
  EXPECT_DOUBLE_EQ(bits_per_byte(std::log(2.0), {.targets = 10, .bytes = 4}), 2.5);
  EXPECT_EQ(bits_per_byte(1, {.targets = 10}), 0) << "not known";
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

// In the shortest text there are 73 places where a sequence can start. From the next place, its
// last target would be in the held-out part.
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
  const auto same = [](char byte, int32_t token) { return static_cast<uint8_t>(byte) == token; };
  for (int64_t size : {90, 1000, 20000}) {
    const Text text = write(size);
    const int64_t count = text.validation_count();
    ASSERT_GE(count, 1);
    const Batch b = batch(count);
    text.draw_validation(b, 0);
    const std::string bytes = read_file(path_), held_out = bytes.substr(size - size / 10);
    int64_t from = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto tokens = values(b.slice(i, 1).tokens), targets = values(b.slice(i, 1).targets);
      const auto at =
          std::search(held_out.begin() + from, held_out.end(), tokens.begin(), tokens.end(), same);
      ASSERT_NE(at, held_out.end()) << "window " << i << " of " << size;
      from = at - held_out.begin() + kT;
      ASSERT_LT(from, static_cast<int64_t>(held_out.size()));
      EXPECT_EQ(targets.back(), static_cast<uint8_t>(held_out[static_cast<size_t>(from)]));
    }
  }
}

TEST_F(TextTest, AForeignTokenIsRefusedWhereItIsDrawn) {
  const Text text = write(90);
  TextOptions fewer = options();
  fewer.vocab = 80;
  EXPECT_USER_ERROR(Text(fewer).draw(batch(64), 1, 0), "is 80, and the vocabulary has 80");
  EXPECT_USER_ERROR(
      Text(fewer).draw_validation(batch(1), 0),
      "token 81 is 81, and the vocabulary has 80; --vocab or --tokenizer sets another");
}

// If another program changes the file, the error is one line that names it.
TEST_F(TextTest, RefusesAFileThatChanges) {
  const Batch b = batch(4);
  for (const auto& [size, says] :
       {std::pair{500, "/text: became shorter: 500 bytes, and 2000 when it was opened"},
        {2001, "/text: became longer: 2001 bytes, and 2000 when it was opened"},
        {0, "/text: became shorter: 0 bytes"}}) {
    const Text text = write(2000);
    text.draw(b, 1, 0);
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(size));
    EXPECT_USER_ERROR(text.draw(b, 1, 1), says);
    EXPECT_USER_ERROR(text.draw_validation(b, 0), says);
  }
  const Text text = write(2000);
  std::filesystem::last_write_time(path_,
                                   std::filesystem::last_write_time(path_) - std::chrono::hours(1));
  EXPECT_USER_ERROR(text.draw(b, 1, 0), "/text: has been written to since it was opened");
}

// A new file under the old name, as an editor or `mv` makes one, is another file.
TEST_F(TextTest, KeepsTheFileThatItOpened) {
  const Text text = write(2000);
  const Batch before = batch(4), after = batch(4);
  text.draw(before, 1, 0);
  write_file(path_ + ".new", std::string(100, 'x'));
  std::filesystem::rename(path_ + ".new", path_);
  text.draw(after, 1, 0);
  EXPECT_EQ(values(after.tokens), values(before.tokens));
}

}  // namespace
}  // namespace ladder
