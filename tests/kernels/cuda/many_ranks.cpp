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

/// The bytes that a rank computes: it opens a device, and runs kernels on numbers of its own.
std::vector<std::byte> results_of(int rank) {
  const std::unique_ptr<Device> device = dev::open_device(0);
  Arena arena{device.get()};
  Ctx ctx;
  ctx.kernels = &dev::kernels();
  ctx.device = device.get();
  ctx.scratch = arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, dev::kScratchBytes});
  const auto empty = [&](Shape shape) {
    return arena.alloc(Mem::Activation, "test", Dtype::F32, shape);
  };
  /// Between -1 and 1.
  const auto input = [&](Shape shape) {
    const Tensor x = empty(shape);
    const HostCopy host = HostCopy::to_write(ctx, x);
    for (int64_t i = 0; i < x.size(); ++i)
      host.tensor().data<float>()[i] =
          static_cast<float>((i * 37 + rank * 11) % 101) / 50.0F - 1.0F;
    host.send();
    return x;
  };
  const Tensor qkv = input({B, T, 3 * C}), dout = input({B, T, C}), w = input({C, C});
  const Tensor out = empty({B, T, C}), lse = empty({B, NH, T}), dqkv = empty({B, T, 3 * C});
  const Tensor product = empty({B, T, C}), mean = empty({B, T}), rstd = empty({B, T});
  const Tensor normed = empty({B, T, C}), dw = empty({C}), db = empty({C});
  // Shared memory sized by the launch, and by the kernel; exchanges; the library's products.
  dev::attention_forward(ctx, out, lse, qkv);
  dev::attention_backward(ctx, dqkv, dout, qkv, out, lse);
  dev::matmul_forward(ctx, product, out, w, {}, kLeaves);
  dev::norm_forward(ctx, normed, mean, rstd, product, w.first(1).view({C}),
                    w.slice(1, 1).view({C}));
  dev::norm_backward_weight(ctx, dw, db, dout, product, mean, rstd, Into::Write);
  std::vector<std::byte> bytes;
  for (const Tensor& x : {out, lse, dqkv, product, normed, dw, db}) {
    const HostCopy host = HostCopy::of(ctx, x);
    const auto* from = static_cast<const std::byte*>(host.tensor().ptr);
    bytes.insert(bytes.end(), from, from + x.bytes());
  }
  return bytes;
}

TEST_F(CudaRanks, ComputeTheSameSideBySideAsAlone) {
  std::vector<std::vector<std::byte>> alone, together(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) alone.push_back(results_of(rank));
  EXPECT_NE(alone[0], alone[1]);
  for (int round = 0; round < kRounds; ++round) {
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] { together[rank] = results_of(rank); });
    }
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(together[rank] == alone[rank]) << rank;
  }
}

}  // namespace
}  // namespace ladder::test
