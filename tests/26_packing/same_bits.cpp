// 26_packing: documents of one length have the bits of 06 at that length; and what it refuses of
// files. Packed and unpacked rows: ../layouts.txt.
#include <fmt/format.h>

#include "common/data/text.h"
#include "common/random.h"
#include "tests/26_packing/document_pair.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class PackingBits : public SameTrace {
 protected:
  /// documents.bin with its index: the sequences of L tokens that 06 draws of text.txt, and a few
  /// more to hold out.
  void write_drawn(int64_t L, int64_t batch) const {
    Arena arena;
    const Text text({.path = path("text.txt").string(), .seq_len = L, .vocab = 256});
    const Batch drawn = alloc_batch(arena, batch, L);
    std::vector<std::vector<uint32_t>> documents;
    for (int64_t step = 0; step < kSteps + 1; ++step) {
      text.draw(drawn, /*seed=*/1, step);
      for (int64_t b = 0; b < batch; ++b) {
        const int32_t* tokens = drawn.tokens.data<int32_t>() + b * L;
        documents.emplace_back(tokens, tokens + L);
        documents.back().push_back(
            static_cast<uint32_t>(drawn.targets.data<int32_t>()[b * L + L - 1]));
      }
    }
    write_documents(path("documents.bin").string(), documents);
  }
  static constexpr const char* kDocuments = "--data documents.bin --tokens uint16 --documents ";
};

// 2^k documents a row.
TEST_F(PackingBits, DocumentsOfOneLengthAreChapter06) {
  for (const auto& [model, L, batch] :
       {std::tuple{"--model nano --layers 2", 4, 8},
        {"--model llama-nano --layers 2", 8, 4},
        {"--model tiny --layers 1 --channels 64", 32, 4},
        {"--model nano --layers 2 --backend ref --tied-head", 4, 4},
        {"--model small --layers 1 --channels 32 --heads 2", 128, 4}}) {
    write_drawn(L, batch);
    const Trace alone =
        trace("06_checkpointing", fmt::format("{} --seq-len {} --batch {}", model, L, batch));
    for (int64_t k = 2; k <= batch && L * k <= (L == 128 ? 256 : L == 32 ? 64 : 16); k *= 2)
      for (const char* more : {"", "--unpacked", "--micro-batch 1 --row-documents 16"})
        EXPECT_TRUE(same_trace(
            alone, trace("26_packing", fmt::format("{} {} --seq-len {} --batch "
                                                   "{} {}",
                                                   model, kDocuments, L * k, batch / k, more))))
            << model << k << more;
  }
}

TEST_F(PackingBits, RefusesDocumentsWithoutTarget) {
  const auto refused = [&](const std::string& text, const std::string& says) {
    write("text.txt", text);
    expect_refused("26_packing", "--documents --end-of-text 10", says);
  };
  refused(std::string(30, '\n'), "none of its 27 documents that train has a target; legal are ten");
  refused("abc\n" + std::string(30, '\n'), "none of its 3 documents that are held out");
  refused("abc\n", "none of its 0 documents that are held out");
}

TEST_F(PackingBits, RefusesTheRowsOfAnotherPlan) {
  train("26_packing", "--steps 1 --documents --end-of-text 10 --pack-window 9 --save half");
  const auto refused = [&](const std::string& flags, const std::string& says) {
    expect_refused("26_packing", "--steps 2 --load half " + flags, "its state documents: " + says);
  };
  refused("--documents --end-of-text 10 --pack-window 8",
          "its rows were planned with --pack ffd --pack-window 9 --row-documents 16 --seq-len 16");
  refused("--documents --end-of-text 32 --pack-window 9",
          "its documents ended with --end-of-text 10; legal is the same");
  refused("", "it was saved with --documents; legal is the same");
}

}  // namespace
}  // namespace ladder::test
