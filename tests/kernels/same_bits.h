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
  const std::string dtype = info.param.dtype == Dtype::BF16 ? "bf16" : "";
  return info.param.kernels().name + std::to_string(info.param.threads) + dtype;
}

/// The whole is computed with one thread, its parts with the threads of the parameter.
class SameBits : public ::testing::TestWithParam<Table> {
 protected:
  Sandbox box{GetParam().kernels(), GetParam().dtype};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  void use_threads() { box.set_threads(GetParam().threads); }
};

}  // namespace ladder::test
