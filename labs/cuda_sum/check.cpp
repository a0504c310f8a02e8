// What the kernel of lab cuda_sum computes, in which order, and what it moves.
#include "labs/check.h"

#include "labs/cuda_sum/row_norm.h"
#include "labs/watched.h"

namespace ladder::lab {
namespace {

struct Case {
  int rows, columns, threads, blocks;
};

/// The norms, and what FP32 may be off by. Each square is rounded, and so is each sum on its way: a
/// thread's chain, then log2(threads) pairs. The root halves that, and is rounded.
std::string near_norms(const OnDevice<float>& norms, const std::vector<float>& x, const Case& of) {
  const double chain = (of.columns + of.threads - 1) / of.threads;
  const double roundings = (1 + chain + std::log2(of.threads)) / 2 + 1;
  std::vector<double> exact, bound;
  for (int r = 0; r < of.rows; ++r) {
    double sum = 0;
    for (int c = 0; c < of.columns; ++c)
      sum += std::pow(x[static_cast<size_t>(r * of.columns + c)], 2);
    exact.push_back(std::sqrt(sum));
    bound.push_back(1.01 * roundings * kUnit * exact.back());
  }
  return near(norms, exact, bound);
}

void check_norms(Sheet& sheet, const std::string& name, const Case& of, bool counted) {
  const int64_t elements = int64_t{of.rows} * of.columns, warps = of.threads / 32;
  sheet.run(fmt::format("{}: {} x {}, {} threads", name, of.rows, of.columns, of.threads), [&] {
    sheet.wanted([&] {
      want_right(sheet);
      if (!counted) return;
      sheet.count("bytes", 4 * elements + 32 * of.rows);  // a norm alone is a sector
      sheet.count("shared", 2 * warps * of.rows);         // each warp writes once and reads once
    });
    if (counted) {
      sheet.without_idea("bytes", 32 * elements + 32 * of.rows);  // a sector for each element
      sheet.without_idea("shared", (5 * warps + 12) * of.rows);   // a tree in shared memory
    }
    const std::vector<float> x = sheet.normals(name, elements);
    const OnDevice<float> inp(x);
    OnDevice<float> norms(of.rows);
    const on_cpu::Watched seen =
        watch(sheet, {.grid = {.x = of.blocks}, .threads = of.threads, .outputs = {&norms}},
              [&] { row_norm(norms.data, inp.data, of.rows, of.columns); });
    sheet.text("values", near_norms(norms, x, of));
    if (!counted) return;
    sheet.count("bytes", seen.bytes_read + seen.bytes_written);
    sheet.count("shared", seen.shared_turns);
  });
}

/// The sums alone, in each thread. The numbers have both signs, so that an error is one beside the
/// sum of their sizes.
void check_sums(Sheet& sheet, int threads) {
  sheet.run(fmt::format("sums: {} threads", threads), [&] {
    sheet.wanted([&] { want_right(sheet); });
    const std::vector<float> x = sheet.normals("sums", threads);
    const OnDevice<float> inp(x);
    OnDevice<float> sums(2 * threads);
    watch(sheet, {.grid = {}, .threads = threads, .outputs = {&sums}}, [&] {
      const int i = static_cast<int>(threadIdx.x);
      sums.data[i] = warp_sum(inp.data[i]);
      sums.data[threads + i] = block_sum(inp.data[i]);
    });
    std::vector<double> exact, bound;
    for (const int group : {32, threads})
      for (int i = 0; i < threads; ++i) {
        double sum = 0, sizes = 0;
        for (int j = i / group * group; j < (i / group + 1) * group; ++j) {
          sum += x[static_cast<size_t>(j)];
          sizes += std::abs(x[static_cast<size_t>(j)]);
        }
        exact.push_back(sum);
        bound.push_back(1.01 * std::ceil(std::log2(group)) * kUnit * sizes);
      }
    sheet.text("values", near(sums, exact, bound));
  });
}

}  // namespace

void cases(Sheet& sheet) {
  check_norms(sheet, "whole", {3, 8 * sheet.pick("whole", {130, 137, 141}), 128, 2}, true);
  check_norms(sheet, "wide", {2, 8 * sheet.pick("wide", {259, 263, 270}), 256, 1}, true);
  check_norms(sheet, "ragged", {5, sheet.pick("ragged", {777, 901, 1003}), 96, 2}, false);
  for (const int warps : {sheet.pick("sums", {5, 7, 9}), 32}) check_sums(sheet, 32 * warps);
  check_norms(sheet, "short", {3, sheet.pick("short", {5, 17, 31}), 64, 1}, false);
}

}  // namespace ladder::lab
