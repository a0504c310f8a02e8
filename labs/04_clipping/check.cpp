// Gradients that are drawn, one for each sequence, are accumulated in micro-batches; a gradient is
// clipped; losses and norms are judged.
#include "labs/check.h"

#include <limits>
#include <string>
#include <vector>

#include "chapters/04_clipping/accumulate.h"
#include "chapters/04_clipping/clip.h"
#include "kernels/tree.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kSteps = 2;

struct Case {
  int64_t batch, micro;
  AccumulateMode mode = AccumulateMode::Tree;
  bool in_pieces = false;  ///< joined section by section, as chapter 07 does
};

/// What backward does with a micro-batch: the tree over its sequences is written, or added once.
void backward(const Sheet& sheet, Tensor grads, Into into, uint64_t step, Range sequences) {
  std::vector<TreeSum<float>> sums(static_cast<size_t>(grads.size()));
  for (int64_t b = sequences.begin; b < sequences.end; ++b) {
    const std::vector<float> one =
        sheet.normals("sequence", grads.size(), 1000 * step + static_cast<uint64_t>(b));
    for (size_t i = 0; i < sums.size(); ++i) sums[i].push(one[i]);
  }
  auto* sum = grads.data<float>();
  for (size_t i = 0; i < sums.size(); ++i)
    sum[i] = into == Into::Write ? sums[i].total() : sum[i] + sums[i].total();
}

/// Throws a message in place of an access past the last buffer.
void rehearse(int64_t parts) {
  const int64_t buffers = TreeCounter::buffers(parts);
  const auto there = [&](size_t buffer, const char* what, int64_t k) {
    CHECK(buffer < static_cast<size_t>(buffers), "part {} of {} {} buffer {}; there are {}", k,
          parts, what, buffer, buffers);
  };
  TreeCounter counter;
  for (int64_t k = 0; k < parts; ++k) {
    counter.begin(k);
    there(counter.top(), "goes into", k);
    counter.join(k, parts, [&](size_t to, size_t from) {
      there(to, "is joined to", k);
      there(from, "is joined from", k);
    });
    counter.end(k, parts);
  }
}

void accumulate(Sheet& sheet, const Case& c) {
  const ParamLayout layout({.name = "lab",
                            .layers = 1,
                            .heads = 1,
                            .channels = 2,
                            .seq_len = 2,
                            .positions = 2,
                            .vocab = 3,
                            .padded_vocab = 4,
                            .tied_head = true});  // more gradients than weights
  const int64_t P = layout.grads().size(), GA = c.batch / c.micro;
  if (c.mode == AccumulateMode::Tree) rehearse(GA);
  CountedKernels kernels;
  kernels.count<&Kernels::add>();
  Arena arena;
  GradTree grads(arena, layout, {.micro_batch = c.micro, .mode = c.mode}, GA);
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (int64_t k = 0; k < GA; ++k) {
      grads.begin(k);
      backward(sheet, grads.flat(), grads.into(), step, {k * c.micro, (k + 1) * c.micro});
      if (c.in_pieces) {
        for (int64_t s = 0; s < layout.sections(); ++s) grads.join(kernels.ctx(), k, GA, s);
        grads.close(k, GA);
      } else {
        grads.end(kernels.ctx(), k, GA);
      }
    }
    sheet.bits(fmt::format("sum/step {}", step), grads.sum());
  }
  sheet.without_idea("adds", kSteps * static_cast<uint64_t>((GA - 1) * P));
  sheet.count("adds", CountedKernels::elements());
  sheet.without_idea("buffers", 4 * P * GA);
  sheet.count("buffers", arena.peak()[Mem::Grad] + arena.peak()[Mem::Workspace]);
}

/// Limits above, at and below the norm, which is a double between two floats.
void clip(Sheet& sheet) {
  CountedKernels kernels;
  constexpr int64_t kN = 24;
  for (uint64_t i = 0; i < 12; ++i) {
    Arena arena;
    const std::vector<float> drawn = sheet.normals("clipped", kN, i);
    const float below = 1 + std::abs(sheet.normals("norm", 1, i)[0]) / 16;
    const double norm = below + 0x1.fp-25;  // rounded to float it is `below`
    const std::vector<float> limits{0, below / 3, 2 * below, below};
    const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {kN});
    std::ranges::copy(drawn, grads.data<float>());
    clip_global_norm(kernels.ctx(), grads, norm, limits[i % 4]);
    sheet.bits(fmt::format("clip/norm {:.5g}, limit {:.5g}", norm, limits[i % 4]), grads);
  }
}

/// Steps whose loss, norm or both are bad. Each row is right as a whole or wrong.
void skip(Sheet& sheet) {
  const auto row = [&](const char* what, double loss, double norm) {
    sheet.text(fmt::format("skip/{}: loss {}, norm {}", what, loss, norm),
               not_finite(loss, norm).empty() ? "an update" : "no update");
  };
  for (const double norm : {1.5, 1e300, kInf, kNaN}) row("of the norm", 2.5, norm);
  for (const double loss : {2.5, kInf, -kInf, kNaN}) row("of the loss", loss, 1.5);
  for (const double loss : {kInf, kNaN}) row("of both", loss, kNaN);
}

}  // namespace

void cases(Sheet& sheet) {
  const int64_t whole = sheet.pick<int64_t>("batch", {8, 16});
  const int64_t odd = sheet.pick<int64_t>("odd batch", {5, 11, 13});
  for (const Case& c :
       {Case{.batch = whole, .micro = 1}, Case{.batch = 12, .micro = 2},
        Case{.batch = whole, .micro = whole}, Case{.batch = 12, .micro = 4},
        Case{.batch = odd, .micro = 1}, Case{.batch = 12, .micro = 1, .in_pieces = true},
        Case{.batch = whole, .micro = 1, .mode = AccumulateMode::Running}})
    sheet.run(fmt::format("{}, a batch of {} in micro-batches of {}{}", to_string(c.mode), c.batch,
                          c.micro, c.in_pieces ? ", joined in pieces" : ""),
              [&] { accumulate(sheet, c); });
  sheet.run("clipping", [&] { clip(sheet); });
  sheet.run("not finite", [&] { skip(sheet); });
}

}  // namespace ladder::lab
