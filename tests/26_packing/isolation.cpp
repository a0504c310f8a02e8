// A document changes no bit of another's loss. Position numbers that restart do not see to that:
// without the mask of attention a document changes those behind it (nanoVLM, pull request 204).
#include <gtest/gtest.h>

#include "chapters/26_packing/packed_text.h"
#include "common/model/init.h"
#include "common/run/backend.h"
#include "tests/common/blocks.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

constexpr int64_t kRow = 16, kB = 2;

class Isolation : public ::testing::TestWithParam<const char*> {
 protected:
  Isolation() { init_params(ctx_, params_, layout_, 1); }

  /// The losses of documents that are packed two bundles a step.
  std::vector<float> losses(const std::vector<std::string>& documents, bool mask = true) {
    std::string text;
    for (const std::string& one : documents) text += one + "\n";
    write_file(home_ / "text.txt", text);
    PackedText packed({.path = home_ / "text.txt", .seq_len = kRow, .vocab = gpt_.vocab}, options_);
    RowCursor place(options_, kRow);
    packed.draw(batch_, place, /*seed=*/1, /*step=*/0);
    const Bundles all = batch_.slice(ctx_, 0, kB);
    forward(all, mask);
    const float* loss = all.losses.data<float>();
    return {loss, loss + all.losses.size()};
  }

  /// Without `mask` blocks take rows for sequences. The position numbers of GPT-2 restart
  /// before them; those of LLaMA, which are in the blocks, do not.
  void forward(const Bundles& all, bool mask) {
    ctx_.documents = all.documents;
    Ctx in_blocks = ctx_;
    if (!mask) in_blocks.documents = {};
    embed_forward(ctx_, acts_.embed, all.rows.tokens, w_.embed);
    for (int64_t l = 0; l < gpt_.layers; ++l) test::forward_block(in_blocks, w_, acts_, l);
    norm_forward(ctx_, acts_.norm, acts_.stat, acts_.stream(gpt_.layers), w_.norm);
    head_forward(ctx_, acts_.logits, acts_.norm, w_.head_w);
    head_loss(ctx_, all.losses, acts_.logits, all.rows.targets, gpt_.vocab);
    ctx_.documents = {};
  }

  TempDir home_;
  PackOptions options_{
      .documents = true, .end_of_text = '\n', .pack = Pack::Greedy, .row_documents = 4};
  RunOptions run_;
  GptConfig gpt_ = preset(GetParam());
  ParamLayout layout_{gpt_};
  Arena arena_;
  Ctx ctx_ = make_ctx(run_, arena_, nullptr, {});
  Flat params_ = layout_.own(arena_.zeros(Mem::Param, "params", Dtype::F32, {layout_.size()}));
  GptTensors w_ = layout_.view(params_.tensor);
  BundleBatch batch_{arena_, options_, kB, kB, kRow};
  Activations acts_ = alloc_activations(arena_, gpt_, kB);
};

// Rows of 6 5 3 and of 9 4 positions, and what is held out.
const std::vector<std::string> kDocuments = {"abcdef", "ghijk",  "lmn", "opqrstuvw", "xyza",
                                             "b",      "cdefgh", "ij",  "kl",        "mn"};

TEST_P(Isolation, ADocumentChangesNoOther) {
  options_.window = 5;
  const std::vector<float> before = losses(kDocuments), open = losses(kDocuments, false);
  for (size_t changed = 0; changed < 5; ++changed) {
    std::vector<std::string> documents = kDocuments;
    for (char& byte : documents[changed]) byte = static_cast<char>('z' - (byte - 'a'));
    const std::vector<float> after = losses(documents), without = losses(documents, false);
    const size_t turn = changed < 3 ? changed : changed + 1;  // four turns a row
    const size_t end = changed < 3 ? 3 : 6;                   // of the documents in its row
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i] == after[i], i != turn) << "document " << changed << ", turn " << i;
      EXPECT_EQ(open[i] == without[i], i < turn || i >= end) << "control: " << changed << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Isolation, ::testing::Values("nano", "llama-nano"),
                         [](const auto& model) {
                           return std::string(model.param) == "nano" ? "Gpt2" : "Llama";
                         });

}  // namespace
}  // namespace ladder
