// Ranks as threads of one process, each with a Device of its own on the same GPU: what one computes
// does not depend on what the others do at the same time.
#include <thread>
#include <vector>

#include "kernels/arena.h"
#include "kernels/transfer.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace ladder::test {
namespace {

constexpr int64_t B = 2, T = 40, NH = 2, HS = 16, C = NH * HS;
constexpr int kRanks = 4, kRounds = 3;

class CudaRanks : public DeviceTest {};

/// A rank: opens a device, and runs kernels on it.
class Rank {
 public:
  explicit Rank(int number) : number_(number) {}

  /// The bytes of everything computed.
  std::vector<std::byte> run() {
    const Tensor qkv = input({B, T, 3 * C}), dout = input({B, T, C}), w = input({C, C});
    const Tensor out = empty({B, T, C}), lse = empty({B, NH, T}), dqkv = empty({B, T, 3 * C});
    const Tensor product = empty({B, T, C}), mean = empty({B, T}), rstd = empty({B, T});
    const Tensor normed = empty({B, T, C}), dw = empty({C}), db = empty({C});
    // Shared memory sized by the launch, and by the kernel; exchanges; the library's products.
    dev::attention_forward(ctx_, out, lse, qkv);
    dev::attention_backward(ctx_, dqkv, dout, qkv, out, lse);
    dev::matmul_forward(ctx_, product, out, w, {}, kLeaves);
    dev::norm_forward(ctx_, normed, mean, rstd, product, w.first(1).view({C}),
                      w.slice(1, 1).view({C}));
    dev::norm_backward_weight(ctx_, dw, db, dout, product, mean, rstd, Into::Write);
    std::vector<std::byte> bytes;
    for (const Tensor& x : {out, lse, dqkv, product, normed, dw, db}) {
      const HostCopy host = HostCopy::of(ctx_, x);
      const auto* from = static_cast<const std::byte*>(host.tensor().ptr);
      bytes.insert(bytes.end(), from, from + x.bytes());
    }
    return bytes;
  }

 private:
  Tensor empty(Shape shape) { return arena_.alloc(Mem::Activation, "test", Dtype::F32, shape); }
  /// Other numbers on each rank, between -1 and 1.
  Tensor input(Shape shape) {
    const Tensor x = empty(shape);
    const HostCopy host = HostCopy::to_write(ctx_, x);
    for (int64_t i = 0; i < x.size(); ++i)
      host.tensor().data<float>()[i] =
          static_cast<float>((i * 37 + number_ * 11) % 101) / 50.0F - 1.0F;
    host.send();
    return x;
  }
  static Ctx make_ctx(Device* device, Arena& arena) {
    Ctx ctx;
    ctx.kernels = &dev::kernels();
    ctx.device = device;
    ctx.scratch = arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, dev::kScratchBytes});
    return ctx;
  }

  int number_;
  std::unique_ptr<Device> device_ = dev::open_device(0);
  Arena arena_{device_.get()};
  Ctx ctx_ = make_ctx(device_.get(), arena_);
};

TEST_F(CudaRanks, ComputeTheSameSideBySideAsAlone) {
  std::vector<std::vector<std::byte>> alone, together(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) alone.push_back(Rank(rank).run());
  EXPECT_NE(alone[0], alone[1]);
  for (int round = 0; round < kRounds; ++round) {
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] { together[rank] = Rank(rank).run(); });
    }
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(together[rank] == alone[rank]) << rank;
  }
}

}  // namespace
}  // namespace ladder::test
