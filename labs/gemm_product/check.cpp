// What a product for the machine computes, loads and fetches.
#include "labs/check.h"

#include "labs/gemm_product/product.h"

namespace ladder::lab {
namespace {

/// The product by three loops.
std::vector<float> by_formula(int64_t M, int64_t N, int64_t K, const std::vector<float>& a,
                              const std::vector<float>& b) {
  std::vector<float> c;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k)
        sum = std::fma(a[static_cast<size_t>(m * K + k)], b[static_cast<size_t>(n * K + k)], sum);
      c.push_back(sum);
    }
  return c;
}

void check_product(Sheet& sheet, const std::string& name, int64_t M, int64_t N, int64_t K,
                   bool counted) {
  sheet.run(name + " " + std::to_string(M) + " x " + std::to_string(N) + " x " + std::to_string(K),
            [&] {
              const std::vector<float> a = sheet.normals(name + ".a", M * K),
                                       b = sheet.normals(name + ".b", N * K);
              sheet.wanted([&] {
                sheet.bits("product", by_formula(M, N, K, a, b));
                if (!counted) return;
                sheet.count("moves", M * N * K * 11 / 20);
                sheet.count("lines", M * N * K / 80);
              });
              if (counted) {
                sheet.without_idea("moves", 2 * M * N * K + M * N);
                sheet.without_idea("lines", M * N * K / Machine::kLine);
              }
              Machine machine(M, N, K, a, b);
              product(machine);
              sheet.bits("product", machine.result());
              if (!counted) return;
              sheet.count("moves", machine.moves());
              sheet.count("lines", machine.lines());
            });
}

}  // namespace

void cases(Sheet& sheet) {
  const auto tiles = [&](std::string_view what) { return 36 * sheet.pick<int64_t>(what, {2, 3}); };
  check_product(sheet, "whole", tiles("M"), tiles("N"), 64, true);
  check_product(sheet, "deep", 72, 72, 32 * sheet.pick<int64_t>("K", {3, 4, 5}), true);
  check_product(sheet, "ragged", sheet.pick<int64_t>("m", {35, 37, 41}),
                sheet.pick<int64_t>("n", {19, 23, 31}), sheet.pick<int64_t>("k", {45, 61, 67}),
                false);
  check_product(sheet, "small", sheet.pick<int64_t>("s", {1, 2, 3}),
                sheet.pick<int64_t>("t", {1, 2, 3}), 5, false);
}

}  // namespace ladder::lab
