// Validation on ranks: each of them takes as many turns as any other, because chapter 10's ranks
// hold shards of the weights, and others wait for theirs.
#include <gtest/gtest.h>

#include "chapters/26_packing/packed_text.h"
#include "common/comm/run_ranks.h"
#include "common/run/backend.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

constexpr int64_t kT = 8, kEach = 2;

struct Told {
  int64_t rounds = 0;
  float mean = 0;
};

/// What each of N ranks does in a validation of `rows` rows, in which row i has the loss 1 + i / 8.
std::vector<Told> validations(const TempDir& home, int64_t rows, int ranks) {
  std::string text;
  for (int64_t i = 0; i < 10 * rows; ++i) text += "abcdefg\n";
  write_file(home / "text.txt", text);
  const PackOptions packing{.documents = true, .end_of_text = '\n', .row_documents = 1};
  std::vector<Told> told(static_cast<size_t>(ranks));
  run_threads(ranks, [&](Comm& comm) {
    Arena arena;
    const RunOptions run;
    const Ctx ctx = make_ctx(run, arena, nullptr);
    const PackedText packed({.path = home / "text.txt", .seq_len = kT, .vocab = 256}, packing);
    EXPECT_EQ(packed.validation_count(), rows);
    BundleBatch batch(arena, packing, kEach, kEach, kT);
    const Tensor losses =
        arena.alloc(Mem::Activation, "all_losses", Dtype::F32, {kEach * comm.size()});
    BundleValidation v(ctx, packed, batch, kEach, losses, &comm);
    Told& own = told[static_cast<size_t>(comm.rank())];
    for (; v.next(); ++own.rounds)
      for (int64_t i = 0; i < v.bundles().losses.size(); ++i)
        v.bundles().losses.data<float>()[i] =
            1 + static_cast<float>((own.rounds * comm.size() + comm.rank()) * kEach + i) / 8;
    own.mean = v.mean();
  });
  return told;
}

TEST(BundleValidation, AllRanksTakeAsManyRounds) {
  const TempDir home;
  for (const int64_t rows : {1, 2, 5, 8, 9})
    for (const int ranks : {1, 2, 4})
      for (const Told& one : validations(home, rows, ranks)) {
        EXPECT_EQ(one.rounds, (rows + kEach * ranks - 1) / (kEach * ranks)) << rows << ranks;
        EXPECT_EQ(one.mean, validations(home, rows, 1)[0].mean) << rows << ranks;
      }
}

}  // namespace
}  // namespace ladder
