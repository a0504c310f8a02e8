// The inputs of blocks in a file: they come back as they went.
#include "chapters/06_checkpointing/offload_file.h"

#include "tests/common/run_files.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class Offload : public ::testing::Test {
 protected:
  Sandbox box{ref_kernels()};
  OffloadFile file{true};
};

TEST_F(Offload, ComesBackBitForBit) {
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
    std::vector<Tensor> inputs;
    for (int64_t l = 0; l < 5; ++l) {
      inputs.push_back(box.random(dtype, {2, 3, 7}));
      file.write(Ctx{}, l, inputs.back());
    }
    for (const int64_t l : {4, 3, 0, 2, 1, 2}) {  // in any order, and more than once
      const Tensor back = box.empty(dtype, {2, 3, 7});
      file.read(Ctx{}, l, back);
      EXPECT_TRUE(same_bits(back, inputs[static_cast<size_t>(l)])) << l;
    }
  }
}

TEST_F(Offload, ALaterWriteWins) {
  const Tensor first = box.random({4, 5}), second = box.random({4, 5}), back = box.empty({4, 5});
  for (const Tensor& input : {first, second}) {
    file.write(Ctx{}, 0, first);
    file.write(Ctx{}, 1, input);
    file.read(Ctx{}, 1, back);
    EXPECT_TRUE(same_bits(back, input));
    file.read(Ctx{}, 0, back);
    EXPECT_TRUE(same_bits(back, first));
  }
}

TEST_F(Offload, CountsWhatItMoves) {
  const Tensor input = box.random({4, 5});
  EXPECT_EQ(file.bytes(), 0);
  file.write(Ctx{}, 0, input);
  file.write(Ctx{}, 1, input);
  EXPECT_EQ(file.bytes(), 2 * 80);
  file.read(Ctx{}, 1, input);
  EXPECT_EQ(file.bytes(), 3 * 80);
}

TEST_F(Offload, WhatWasNotWrittenCannotBeRead) {
  const Tensor input = box.random({4, 5});
  EXPECT_USER_ERROR(file.read(Ctx{}, 0, input), "cannot read back the input of block 0");
  file.write(Ctx{}, 0, input);
  EXPECT_USER_ERROR(file.read(Ctx{}, 1, input), "cannot read back the input of block 1");
  file.read(Ctx{}, 0, input);  // and the file is as good as before
}

TEST(OffloadOff, DoesNothing) {
  Sandbox box(ref_kernels());
  OffloadFile file(false);
  const Tensor input = box.random({4, 5}), before = box.copy(input);
  file.write(Ctx{}, 0, input);
  file.read(Ctx{}, 3, input);
  EXPECT_TRUE(same_bits(input, before));
  EXPECT_EQ(file.bytes(), 0);
}

}  // namespace
}  // namespace ladder::test
