// Arena: counted bytes.
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

TEST(Arena, CountsByCategory) {
  Arena arena;
  Tensor grad = arena.alloc(Mem::Grad, "grad", Dtype::F32, {100});
  arena.alloc(Mem::Activation, "tokens", Dtype::I32, {3});
  EXPECT_EQ(arena.current()[Mem::Grad], 400);
  EXPECT_EQ(arena.current()[Mem::Activation], 12);
  EXPECT_EQ(arena.current().total(), 412);

  arena.release(grad);
  EXPECT_FALSE(grad);
  EXPECT_EQ(arena.current()[Mem::Grad], 0);
  EXPECT_EQ(arena.peak()[Mem::Grad], 400);
  arena.alloc(Mem::Grad, "smaller", Dtype::F32, {50});
  EXPECT_EQ(arena.current()[Mem::Grad], 200);
  EXPECT_EQ(arena.peak()[Mem::Grad], 400);
}

TEST(Arena, NewMemoryIsPoisonedAndAligned) {
  Arena arena;
  for (const int64_t n : {1, 7, 64, 1000}) {
    const Tensor x = arena.alloc(Mem::Workspace, "x", Dtype::F32, {n});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.ptr) % 64, 0U);
    for (int64_t i = 0; i < n; ++i) EXPECT_TRUE(std::isnan(at(x, i)));
  }
}

TEST(Arena, LargeTensorsBeginAHugePage) {
  constexpr int64_t kHugePage = 2 << 20;
  Arena arena;
  const Tensor first = arena.alloc(Mem::Param, "first", Dtype::U8, {2 * kHugePage + 1});
  const Tensor second = arena.alloc(Mem::Grad, "second", Dtype::U8, {5 * kHugePage / 2});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.ptr) % kHugePage, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second.ptr) % kHugePage, 0U);
  EXPECT_EQ(first.data<uint8_t>()[2 * kHugePage], 0xFF) << "the part of a huge page at the end";
  EXPECT_EQ(arena.current().total(), first.bytes() + second.bytes());
}

TEST(Arena, RefusesWhatIsNotItsOwn) {
  Arena arena, other;
  Tensor x = other.alloc(Mem::Param, "x", Dtype::F32, {4}), null;
  EXPECT_THROW(arena.release(x), CheckError);
  EXPECT_THROW(arena.release(null), CheckError);
  Tensor part = x.slice(1, 2);
  EXPECT_THROW(other.release(part), CheckError);
}

// Some systems promise more memory than they have. They end the process when memory is filled.
TEST(Arena, RefusesMoreThanTheMachineHasLeft) {
  Arena arena;
  const int64_t bytes = host_memory_left() + (int64_t{64} << 20);
  EXPECT_THROW(arena.alloc(Mem::Activation, "logits", Dtype::U8, {bytes}), OutOfMemory);
  EXPECT_EQ(arena.current().total(), 0);
}

// The sanitizers end the program themselves when asked for so much.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Arena, NamesWhatDoesNotFit) {
  Arena arena;
  arena.alloc(Mem::Grad, "grad", Dtype::F32, {100});
  try {
    arena.alloc(Mem::Param, "h3.fc.w", Dtype::F32, {int64_t{1} << 55});
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_TRUE(std::string_view(error.what())
                    .starts_with("no memory for h3.fc.w (36028797018963968): 144115188075855872 "
                                 "bytes, beside Grad 400; the machine has "))
        << error.what();
  }
  EXPECT_EQ(arena.current().total(), 400);
}
#endif

}  // namespace
}  // namespace ladder::test
