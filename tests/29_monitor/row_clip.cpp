// Clipping rows on ranks: the host waits for the device once a pass, not once a tensor, and has
// chapter 14's bits on a device that does nothing before it must.
#include "chapters/29_monitor/row_clip.h"

#include <functional>
#include <utility>

#include "common/comm/self_comm.h"
#include "tests/common/comm/late_device.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// Counts how often the host waits for kernels.
class CountingDevice : public LateDevice {
 public:
  int waits = 0;

  void kernel(std::function<void()> work) {
    is_busy_ = true;
    queue(std::move(work));
  }
  void synchronize() override {
    waits += is_busy_ ? 1 : 0;
    is_busy_ = false;
    LateDevice::synchronize();
  }

 private:
  bool is_busy_ = false;
};

CountingDevice& device_of(const Ctx& ctx) { return dynamic_cast<CountingDevice&>(*ctx.device); }

/// Kernels of the clipping, queued.
const Kernels& queued_kernels() {
  static const Kernels table = [] {
    Kernels kernels = ref_kernels();
    kernels.squared_norm = [](const Ctx& ctx, Tensor limbs, Tensor x) {
      device_of(ctx).kernel([=] {
        Ctx host;
        cpu_kernels().squared_norm(host, limbs, x);
      });
    };
    kernels.adaptive_clip = [](const Ctx& ctx, Tensor x, Tensor x_limbs, Tensor w_limbs,
                               float limit) {
      device_of(ctx).kernel([=] {
        Ctx host;
        cpu_kernels().adaptive_clip(host, x, x_limbs, w_limbs, limit);
      });
    };
    return kernels;
  }();
  return table;
}

TEST(RowClip, WaitsOnceAPass) {
  const GptConfig config{.name = "test",
                         .layers = 4,
                         .heads = 2,
                         .channels = 16,
                         .seq_len = 8,
                         .positions = 8,
                         .vocab = 96,
                         .padded_vocab = 96};
  const ParamLayout params{config};
  const AdaptiveClipOptions options{.agc = 0.1F};
  Sandbox box(cpu_kernels());
  const Tensor weights = box.random({params.size()}), grads = box.random({params.size()}),
               expected = box.copy(grads);
  Arena host;
  AdaptiveClip(host, params, options).apply(box.ctx(), expected, weights);

  CountingDevice device;
  Arena arena(&device);
  Ctx ctx;
  ctx.kernels = &queued_kernels();
  ctx.device = &device;
  SelfComm comm;
  comm.attach(&device);
  const RowClip clip(arena, params, params.shard(0), options);
  EXPECT_TRUE(clip.apply(ctx, grads, weights, comm));
  device.synchronize();
  EXPECT_TRUE(same_bits(grads, expected));
  // The rows of the token embedding, 96, fill a pass. The positions have 8. A block has 4 matrices
  // with 48, 16, 64 and 16 rows, and 8 vectors: a pass for two tensors of a block or more. A pass
  // waits for its norms, and then for its clipping, before the next one takes the memory.
  EXPECT_LE(device.waits, 2 * 10);
  EXPECT_GT(std::ssize(params.specs()), 50);
}

}  // namespace
}  // namespace ladder::test
