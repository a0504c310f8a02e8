// What the functions of lab cuda_loss compute, in which order, and what they move.
#include "labs/check.h"

#include "labs/cuda_loss/softmax_loss.h"
#include "labs/watched.h"

namespace ladder::lab {
namespace {

constexpr float kNone = -INFINITY;

/// merge() alone: of numbers, of none, of numbers far apart.
void check_merge(Sheet& sheet) {
  sheet.run("two partial softmaxes", [&] {
    const auto told = [](PartialSoftmax got, double max, double sum) {
      return got.max == max && std::abs(got.sum - sum) <= 8 * kUnit * sum
                 ? std::string(kNear)
                 : fmt::format("({}, {}) in place of ({}, {})", got.max, got.sum, max, sum);
    };
    const std::vector<float> x = sheet.normals("merge", 4);
    const std::pair<PartialSoftmax, PartialSoftmax> pairs[] = {
        {{x[0], 3}, {x[1], 2}},  {{x[1], 1}, {x[0], 5}},   {{kNone, 0}, {x[2], 4}},
        {{x[2], 4}, {kNone, 0}}, {{kNone, 0}, {kNone, 1}}, {{x[3] + 900, 1}, {x[3], 7}}};
    sheet.wanted([&] {
      for (size_t i = 0; i < std::size(pairs); ++i) sheet.text(fmt::format("merge/{}", i), kNear);
    });
    for (size_t i = 0; const auto& [a, b] : pairs) {
      const double max = std::max(a.max, b.max);
      const auto sum = [&](PartialSoftmax of) {
        return of.max == kNone ? 0 : of.sum * std::exp(of.max - max);
      };
      sheet.text(fmt::format("merge/{}", i++), told(merge(a, b), max, sum(a) + sum(b)));
    }
  });
}

struct Case {
  int rows, columns, threads, blocks;
  float spread, scale;
};

struct Exact {
  std::vector<double> losses, loss_bounds, gradients, bounds;
};

/// In double, and what FP32 may be off by. The partial softmax of a row is merged by a thread's
/// chain, then by log2(threads) pairs. Each merge has two exponentials, two products and a sum: 8
/// roundings. What an exponential is off by through its argument is at most the logits' range.
Exact exact(const std::vector<float>& x, const std::vector<int>& targets, const Case& of) {
  const double merges = (of.columns + of.threads - 1) / of.threads + std::log2(of.threads);
  Exact all;
  for (int r = 0; r < of.rows; ++r) {
    const float* row = &x[static_cast<size_t>(r) * static_cast<size_t>(of.columns)];
    double max = kNone, min = -kNone, sum = 0;
    for (int c = 0; c < of.columns; ++c) {
      max = std::max<double>(max, row[c]);
      if (row[c] != kNone) min = std::min<double>(min, row[c]);
    }
    for (int c = 0; c < of.columns; ++c) sum += std::exp(row[c] - max);
    const double s = max + std::log(sum);
    const int target = targets[static_cast<size_t>(r)];
    const double off = kUnit * (8 * merges + max - min + 2 * std::log(sum) + std::abs(s));
    all.losses.push_back(s - row[target]);
    all.loss_bounds.push_back(1.01 * (off + kUnit * std::abs(all.losses.back())));
    for (int c = 0; c < of.columns; ++c) {
      const double p = std::exp(row[c] - s), one = c == target ? 1 : 0;
      const double argument = row[c] == kNone ? 0 : kUnit * std::abs(row[c] - s);
      all.gradients.push_back(of.scale * (p - one));
      all.bounds.push_back(of.scale * 1.01 *
                               (p * (off + argument + 2 * kUnit) + 2 * kUnit * std::abs(p - one)) +
                           1e-44);  // where an exponential has few bits left
    }
  }
  return all;
}

void check_loss(Sheet& sheet, const std::string& name, const Case& of, bool counted) {
  const int64_t elements = int64_t{of.rows} * of.columns;
  // A loss is a sector, and so is what each warp reads of a target, and a row's logit of it.
  const int64_t beside = 32 * of.rows * (2 + of.threads / 32);
  sheet.run(fmt::format("{}: {} x {}, {} threads", name, of.rows, of.columns, of.threads), [&] {
    sheet.wanted([&] {
      want_right(sheet);
      sheet.text("values/gradients", kNear);
      if (counted) sheet.count("bytes", 12 * elements + beside);  // read twice, written once
    });
    if (counted) sheet.without_idea("bytes", 16 * elements + beside);
    std::vector<float> x = sheet.normals(name, elements);
    std::vector<int> targets;
    for (float& logit : x) logit *= of.spread;
    for (int r = 0; r < of.rows; ++r) {
      targets.push_back((7 * r + 3) % of.columns);
      if (of.columns > 8)  // as a mask does
        x[static_cast<size_t>(r * of.columns + (7 * r + 5) % of.columns)] = kNone;
    }
    const OnDevice<float> logits(x);
    const OnDevice<int> at(targets);
    OnDevice<float> losses(of.rows), gradients(elements);
    const Start start{
        .grid = {.x = of.blocks}, .threads = of.threads, .outputs = {&losses, &gradients}};
    const on_cpu::Watched seen = watch(sheet, start, [&] {
      softmax_loss(losses.data, gradients.data, logits.data, at.data, of.rows, of.columns,
                   of.scale);
    });
    const Exact right = exact(x, targets, of);
    sheet.text("values", near(losses, right.losses, right.loss_bounds));
    sheet.text("values/gradients", near(gradients, right.gradients, right.bounds));
    if (counted) sheet.count("bytes", seen.bytes_read + seen.bytes_written);
  });
}

}  // namespace

void cases(Sheet& sheet) {
  check_merge(sheet);
  check_loss(sheet, "whole", {3, 8 * sheet.pick("whole", {65, 71, 90}), 128, 2, 1, 0.25f}, true);
  check_loss(sheet, "large", {2, 8 * sheet.pick("large", {67, 70, 83}), 64, 2, 300, 1}, true);
  check_loss(sheet, "ragged", {5, sheet.pick("ragged", {301, 423, 517}), 96, 2, 3, 0.125f}, false);
  check_loss(sheet, "short", {3, sheet.pick("short", {1, 5, 31}), 64, 1, 1, 0.5f}, false);
}

}  // namespace ladder::lab
