// The list of rows: the same for any ranks, from any place, with each document once an epoch.
#include "chapters/27_data_order/data_order.h"

#include <malloc.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/26_packing/document_pair.h"
#include "tests/common/programs.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

/// How often each document was learned from, by the number that its tokens are.
using Learned = std::map<int32_t, int64_t>;

class DataOrderTest : public ::testing::Test {
 protected:
  static constexpr int64_t kT = 8, kVocab = 1000;

  DataOrderTest() {
    run_.data = home_ / "none.bin";
    run_.tokens = TokenKind::Uint16;
    run_.format = {.width = 2};
    packing_.documents = true;
    packing_.window = 16;
    packing_.row_documents = 3;
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < 40; ++i) lengths.push_back(2 + i * 7 % 23);  // some are cut
    write("a.bin", {lengths.begin(), lengths.begin() + 25}, 100);
    write("b.bin", {lengths.begin() + 25, lengths.end()}, 200);
  }

  /// X.bin with documents of so many tokens, X.idx beside it. The first token of each is its
  /// number, from `first` on.
  void write(const std::string& name, const std::vector<int64_t>& lengths, uint32_t first) const {
    std::vector<std::vector<uint32_t>> documents;
    for (const int64_t length : lengths)
      documents.emplace_back(static_cast<size_t>(length), first++ % kVocab);
    write_documents(home_ / name, documents);
  }

  /// Flags as the command line gives them; files lie in the directory of the test.
  SourceOptions look(const std::vector<std::string>& given, int64_t epochs = 0) {
    SourceOptions sources;
    sources.epochs = epochs;
    for (const std::string& source : given) sources.given.push_back(home_ / source);
    sources.find_files(run_, packing_);
    return sources;
  }
  OrderPlace place(const SourceOptions& sources) const { return {sources, packing_, kT, 1}; }
  DataOrder open(const SourceOptions& sources) const {
    GptConfig gpt = preset("nano");
    gpt.seq_len = kT;
    gpt.vocab = kVocab;
    return {sources, packing_, run_, gpt};
  }

  /// The targets of each step, by bundle and piece, until there are so many steps or no more.
  /// `ranks` read a share each.
  std::vector<std::string> steps(const SourceOptions& sources, OrderPlace at, int64_t B, int64_t N,
                                 int64_t most, Learned* learned = nullptr) const {
    std::vector<std::string> all;
    std::vector<std::unique_ptr<DataOrder>> ranks;
    for (int64_t r = 0; r < N; ++r) ranks.emplace_back(new DataOrder(open(sources)));
    while (std::ssize(all) < most) {
      std::string step;
      OrderPlace next = at;
      for (int64_t r = 0; r < N; ++r) {
        const OrderedStep read =
            ranks[static_cast<size_t>(r)]->read(at, B, numbers_in({r * B / N, (r + 1) * B / N}));
        if (!read.whole) return all;
        for (const auto& pieces : read.bundles) {
          for (const Piece& piece : pieces) {
            std::vector<int32_t> tokens(static_cast<size_t>(piece.length + 1));
            read.read(piece.begin, tokens);
            step += fmt::format("{} x {}, ", tokens[0], piece.length);
            if (learned) (*learned)[tokens[0]] += piece.length;
          }
          step += "| ";
        }
        next = read.after;
      }
      all.push_back(step);
      at = next;
      last_ = at;
    }
    return all;
  }

  TempDir home_;
  RunOptions run_;
  PackOptions packing_;
  mutable std::optional<OrderPlace> last_;
};

TEST_F(DataOrderTest, IsTheSameOnAnyRanks) {
  const SourceOptions sources = look({"a.bin:3", "b.bin:1"});
  const auto alone = steps(sources, place(sources), 8, 1, 30);
  EXPECT_EQ(alone.size(), 30u);
  EXPECT_EQ(std::set(alone.begin(), alone.end()).size(), 30u);
  for (const int64_t N : {2, 4, 8}) EXPECT_EQ(steps(sources, place(sources), 8, N, 30), alone) << N;
}

// As in chapters 09, 10 and 30, whose micro-batches are dealt to ranks in turn.
TEST_F(DataOrderTest, ARankReadsTheBundlesThatItsLayoutSays) {
  const SourceOptions sources = look({"a.bin:3", "b.bin:1"});
  DataOrder order = open(sources);
  const OrderedStep all = order.read(place(sources), 8, numbers_in({0, 8}));
  const OrderedStep own = order.read(place(sources), 8, {2, 3, 6, 7});
  ASSERT_EQ(own.bundles.size(), 4u);
  const auto first = [](const OrderedStep& step, size_t bundle) {
    return step.tokens[static_cast<size_t>(step.bundles[bundle].front().begin)];
  };
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(first(own, i), first(all, std::array{2, 3, 6, 7}.at(i))) << i;
  EXPECT_TRUE(own.after == all.after);
}

// At every step: within a window, at its end, and across the end of an epoch.
TEST_F(DataOrderTest, GoesOnFromEveryPlace) {
  const SourceOptions sources = look({"a.bin:3", "b.bin:1"});
  const auto whole = steps(sources, place(sources), 8, 1, 30);
  for (int64_t step = 1; step < 30; ++step) {
    auto both = steps(sources, place(sources), 8, 2, step);
    OrderPlace loaded = place(sources);
    loaded.seed = 99;  // the checkpoint's is taken
    loaded.set_state(nlohmann::json::parse(last_->state().dump()));
    for (const std::string& rest : steps(sources, loaded, 8, 4, 30 - step)) both.push_back(rest);
    EXPECT_EQ(both, whole) << step;
  }
}

// The window in hand keeps its rows, so no document is lost. Then shares count anew.
TEST_F(DataOrderTest, NewWeightsHoldFromTheNextWindowOn) {
  const SourceOptions before = look({"a.bin:3", "b.bin:1"});
  SourceOptions after = look({"a.bin:1", "b.bin:3"});
  steps(before, place(before), 1, 1, 2);
  const OrderPlace old = *last_;
  OrderPlace at = place(after);
  EXPECT_THROW(at.set_state(old.state()), UserError);
  after.new_weights = true;
  at.set_state(old.state());
  const auto as_before = steps(before, old, 1, 1, 120), whole = steps(after, at, 1, 1, 120);
  EXPECT_EQ(whole[0], as_before[0]);
  EXPECT_NE(whole, as_before);

  EXPECT_EQ(last_->since, old.counts_at_end);
  const auto dealt = [&](size_t s) { return last_->counts_at_end[s] - last_->since[s]; };
  const int64_t a = dealt(0), b = dealt(1);
  EXPECT_GT(a, 10);
  EXPECT_LT(std::abs(b - 3 * a), 4);
  for (const int64_t stop : {1, 5, 20}) {
    steps(after, at, 1, 1, stop);
    OrderPlace loaded = place(after);
    loaded.set_state(nlohmann::json::parse(last_->state().dump()));
    EXPECT_EQ(steps(after, loaded, 1, 1, 120 - stop),
              std::vector(whole.begin() + stop, whole.end()));
  }
}

TEST_F(DataOrderTest, NegativeControlARowAWindowAndACountMatter) {
  const SourceOptions sources = look({"a.bin:3", "b.bin:1"});
  steps(sources, place(sources), 8, 1, 6);
  OrderPlace at = *last_;
  ASSERT_GT(at.window, 0);
  at.row = 1;
  const auto wanted = steps(sources, at, 8, 1, 2);
  OrderPlace other = at;
  ++other.row;
  EXPECT_NE(steps(sources, other, 8, 1, 2), wanted);
  other = at;
  --other.counts_at_begin[0];
  ++other.counts_at_begin[1];
  EXPECT_NE(steps(sources, other, 8, 1, 2), wanted);
  other = at;
  ++other.seed;
  EXPECT_NE(steps(sources, other, 8, 1, 2), wanted);
}

// The run ends before a source begins another epoch. Until then it has had each of its documents
// as often as it had epochs, and the others as often as the weights say.
TEST_F(DataOrderTest, EachDocumentOnceAnEpoch) {
  packing_.row_documents = 8;
  for (const int64_t epochs : {1, 3}) {
    const SourceOptions sources = look({"a.bin:1"}, epochs);
    Learned learned;
    steps(sources, place(sources), 1, 1, 10'000, &learned);
    EXPECT_EQ(learned.size(), 25u);
    for (const auto& [document, targets] : learned)
      EXPECT_EQ(targets, epochs * (1 + (document - 100) * 7 % 23)) << document;
  }
  // b has 15 documents and is dealt twice as often: it is at its end when a has had 7 or 8.
  const SourceOptions both = look({"a.bin:1", "b.bin:2"}, 1);
  Learned learned;
  steps(both, place(both), 1, 1, 10'000, &learned);
  EXPECT_EQ(std::count_if(learned.begin(), learned.end(), [](auto& d) { return d.first >= 200; }),
            15);
  EXPECT_NEAR(static_cast<double>(learned.size()) - 15, 7.5, 1);
}

// A window that the end cut stays as it is: no document is lost, and none comes twice.
TEST_F(DataOrderTest, MoreEpochsAfterAnEnd) {
  packing_.row_documents = 8;
  const SourceOptions once = look({"a.bin:1"}, 1), twice = look({"a.bin:1"}, 2);
  Learned learned;
  steps(once, place(once), 1, 1, 10'000, &learned);
  OrderPlace loaded = place(twice);
  loaded.set_state(last_->state());
  steps(twice, loaded, 1, 1, 10'000, &learned);
  for (const auto& [document, targets] : learned)
    EXPECT_EQ(targets, 2 * (1 + (document - 100) * 7 % 23)) << document;
}

TEST_F(DataOrderTest, CountsTargetsOfEachSource) {
  const SourceOptions sources = look({"a.bin:1", "b.bin:1"});
  Learned learned;
  steps(sources, place(sources), 8, 2, 12, &learned);
  std::vector<int64_t> targets(2);
  for (const auto& [document, count] : learned) targets[document >= 200] += count;
  EXPECT_EQ(last_->targets, targets);
}

TEST_F(DataOrderTest, ADirectoryIsOneSourceInTheOrderOfNames) {
  std::filesystem::create_directory(home_ / "d");
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 25; ++i) lengths.push_back(2 + i * 7 % 23);
  write("d/2.bin", {lengths.begin() + 10, lengths.end()}, 110);
  write("d/1.bin", {lengths.begin(), lengths.begin() + 10}, 100);
  const SourceOptions one = look({"a.bin:1"}), many = look({"d:1"});
  EXPECT_EQ(steps(many, place(many), 4, 1, 10), steps(one, place(one), 4, 1, 10));
}

TEST_F(DataOrderTest, WhatIsHeldOutIsNoDocumentOfASource) {
  run_.data = home_ / "./a.bin";
  const SourceOptions sources = look({"a.bin:1"}, 1);
  Learned learned;
  steps(sources, place(sources), 1, 1, 1000, &learned);
  EXPECT_EQ(learned.size(), 23u);
  EXPECT_EQ(learned.rbegin()->first, 122);
}

/// Bytes that were asked for and not given back.
int64_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// A list of so many numbers takes 8 MB.
TEST_F(DataOrderTest, AMillionDocumentsTakeNoMemory) {
  constexpr int64_t kDocuments = 1'000'000, kMost = 1 << 20;
  write("many.bin", std::vector<int64_t>(kDocuments, 2), 0);
  packing_.window = 1024;
  packing_.row_documents = 8;
  const int64_t before = allocated();
  int64_t most = 0;
  const SourceOptions sources = look({"many.bin:1"}, 1);
  DataOrder order = open(sources);
  OrderPlace at = place(sources);
  for (int64_t step = 0; step < 20; ++step) {
    at = order.read(at, 1000, numbers_in({0, 8})).after;
    most = std::max(most, allocated() - before);
  }
  EXPECT_GE(at.counts_at_begin[0], 20 * 8000 - packing_.window);
  EXPECT_LT(most, kMost);
  if (test::kSanitized) return;  // another allocator
  const std::vector<int64_t> control(kDocuments);
  EXPECT_GT(allocated() - before, kMost);
}

}  // namespace
}  // namespace ladder
