// Fixture of the "same bits" tests: each runs on every table, with several thread counts.
#pragma once

#include <vector>

#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {

struct Table {
  const Kernels& (*kernels)();
  int threads;
  Dtype dtype = Dtype::F32;
};

inline std::string table_name(const ::testing::TestParamInfo<Table>& info) {
  const char* dtype = "";
  if (info.param.dtype == Dtype::F64) dtype = "f64";
  if (info.param.dtype == Dtype::BF16) dtype = "bf16";
  if (info.param.dtype == Dtype::F16) dtype = "f16";
  return info.param.kernels().name + std::to_string(info.param.threads) + dtype;
}

/// What the tests of "same bits" run on: every table with every dtype of activations that it has.
inline std::vector<Table> tables_of_all_dtypes() {
  std::vector<Table> all{{cpu_kernels, 2}, {ref_kernels, 1, Dtype::F64}};
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16, Dtype::F16})
    for (const Table& one : {Table{ref_kernels, 1}, {cpu_kernels, 1}, {cpu_kernels, 3}})
      all.push_back({one.kernels, one.threads, dtype});
  return all;
}

/// The whole is computed with one thread, its parts with the threads of the parameter, where they
/// are large enough: cpu_same_bits.cpp has sizes at which threads cut every operation.
class SameBits : public ::testing::TestWithParam<Table> {
 protected:
  const Dtype dtype = GetParam().dtype;
  const Dtype sums = wide(dtype);  ///< of sums and statistics
  Sandbox box{GetParam().kernels(), dtype};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  void use_threads() { box.set_threads(GetParam().threads); }

  /// The sum over ranks, as halving and doubling has it: at distance 1, then 2, then 4.
  Tensor join(std::vector<Tensor> x) {
    for (size_t step = 1; step < x.size(); step *= 2)
      for (size_t i = 0; i + step < x.size(); i += 2 * step) k.add(ctx, x[i], x[i], x[i + step]);
    return x[0];
  }
  /// Columns [begin, begin + count), as a tensor of its own.
  Tensor columns(const Tensor& x, int64_t begin, int64_t count) {
    Shape shape = x.shape;
    shape.dims[shape.rank - 1] = count;
    const Tensor part = box.empty(shape);
    for (int64_t i = 0; i < part.size(); ++i)
      set(part, i, at(x, i / count * x.dim(-1) + begin + i % count));
    return part;
  }
  /// Tokens `ranges`, one behind the other, of sequences [b, b + n). x (B,T,..)
  Tensor tokens_of(const Tensor& x, int64_t b, int64_t n, const std::vector<Range>& ranges) {
    Shape shape = x.shape;
    shape.dims[0] = n;
    shape.dims[1] = 0;
    for (const Range& range : ranges) shape.dims[1] += range.size();
    const Tensor to = box.empty(x.dtype, shape);
    const int64_t row = x.bytes() / (x.dim(0) * x.dim(1));
    char* at = static_cast<char*>(to.ptr);
    for (int64_t i = b; i < b + n; ++i)
      for (const Range& range : ranges) {
        std::memcpy(at, static_cast<char*>(x.ptr) + (i * x.dim(1) + range.begin) * row,
                    static_cast<size_t>(range.size() * row));
        at += range.size() * row;
      }
    return to;
  }
};

}  // namespace ladder::test
