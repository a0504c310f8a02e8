// Fixture of the "same bits" tests: each runs on every table, with several thread counts.
#pragma once

#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {

struct Table {
  const Kernels& (*kernels)();
  int threads;
  Dtype dtype = Dtype::F32;
};

/// What the tests of "same bits" run on.
inline std::vector<Table> tables() {
  return {{ref_kernels, 1}, {cpu_kernels, 1}, {cpu_kernels, 2}, {cpu_kernels, 3}};
}

inline std::string table_name(const ::testing::TestParamInfo<Table>& info) {
  const char* dtype = "";
  if (info.param.dtype == Dtype::F64) dtype = "f64";
  if (info.param.dtype == Dtype::BF16) dtype = "bf16";
  if (info.param.dtype == Dtype::F16) dtype = "f16";
  return info.param.kernels().name + std::to_string(info.param.threads) + dtype;
}

/// Every table with every dtype of activations that it has.
inline std::vector<Table> tables_of_all_dtypes() {
  std::vector<Table> all = tables();
  all.push_back({ref_kernels, 1, Dtype::F64});
  for (const Dtype dtype : {Dtype::BF16, Dtype::F16})
    for (const int threads : {1, 3}) {
      if (threads == 1) all.push_back({ref_kernels, threads, dtype});
      all.push_back({cpu_kernels, threads, dtype});
    }
  return all;
}

/// The whole is computed with one thread, its parts with the threads of the parameter, where they
/// are large enough: cpu_same_bits.cpp has sizes at which threads cut every operation.
class SameBits : public ::testing::TestWithParam<Table> {
 protected:
  Sandbox box{GetParam().kernels(), GetParam().dtype};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  void use_threads() { box.set_threads(GetParam().threads); }
};

}  // namespace ladder::test
