// Chapter 38's program with one of the two mistakes that merging invites, which are no conflict of
// lines (docs/composing.md):
//
//   planted_38_pretrain MISTAKE PROGRAM FLAGS...
//
// A test gives it as the launcher of PROGRAM, the sound one, which is not run.
#include <array>
#include <cstdint>
#include <vector>

#include "chapters/27_data_order/ordered_text.h"

namespace ladder::planted {

enum class Mistake : uint8_t { None, Rows, Rounds };
constexpr auto names_of(Mistake) { return std::array{"none", "rows", "rounds"}; }

Mistake mistake = Mistake::None;

/// Rows: each rank reads one range of a step's bundles, as in chapter 27 by itself. For one shard
/// group and micro-batches of one bundle, so that the first bundle of a rank is its number.
class OrderedText : public ladder::OrderedText {
 public:
  OrderedText(const RunOptions& run, const GptConfig& gpt, const PackOptions& packing,
              const SourceOptions& sources, std::vector<int64_t> own, int64_t B)
      : ladder::OrderedText(run, gpt, packing, sources, planted(std::move(own)), B) {}

 private:
  static std::vector<int64_t> planted(std::vector<int64_t> own) {
    const int64_t share = std::ssize(own), rank = own.front();
    return mistake == Mistake::Rows ? numbers_in({rank * share, (rank + 1) * share}) : own;
  }
};

/// Rounds: a rank that has no row left ends its validation.
class BundleValidation : public ladder::BundleValidation {
 public:
  BundleValidation(const Ctx& ctx, const PackedText& text, BundleBatch& batch, int64_t each,
                   Tensor losses, Comm* comm)
      : ladder::BundleValidation(ctx, text, batch, each, losses, comm),
        rows_(text.validation_count()),
        next_(comm->rank() * each),
        by_(comm->size() * each) {}

  bool next() {
    if (mistake == Mistake::Rounds && next_ >= rows_) return false;
    next_ += by_;
    return ladder::BundleValidation::next();
  }

 private:
  int64_t rows_, next_, by_;
};

}  // namespace ladder::planted

// The program takes these in the place of the sound ones. Its main() has another name here.
#define OrderedText planted::OrderedText
#define BundleValidation planted::BundleValidation
#define main chapter_main
#include "chapters/38_pretrain/main.cpp"
#undef main

int main(int argc, char** argv) {
  using ladder::planted::Mistake;
  ladder::planted::mistake = ladder::named<Mistake>(argv[1]).value();
  return chapter_main(argc - 2, argv + 2);
}
