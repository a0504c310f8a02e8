// A table of the host under test, LADDER_TABLE. What it gets lies in memory of exact size, so that
// AddressSanitizer sees a step past the end.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "kernels/kernels.h"
#include "tests/kernels/under_test.h"

namespace ladder::test {
namespace {

class Host : public UnderTest {
 public:
  Host() {
    constexpr int kThreads = 3;
    ctx.kernels = &LADDER_TABLE();
    ctx.threads = kThreads;
    ctx.scratch =
        arena_.alloc(Mem::Workspace, "scratch", Dtype::U8, {kThreads, ctx.kernels->scratch_bytes});
  }

  Tensor upload(const Tensor& host) override {
    const Tensor tensor = copy(host);
    return host.fp8 ? with_scale(tensor, *host.fp8) : tensor;
  }
  Tensor download(const Tensor& device) override { return upload(device); }
  Tensor share(const Tensor& host) override { return copy(host); }
  Tensor empty(Dtype dtype, Shape shape) override {
    Tensor tensor{.dtype = dtype, .shape = shape};
    const auto bytes = static_cast<size_t>(tensor.bytes());
    tensor.ptr = memory_.emplace_back(std::malloc(bytes), &std::free).get();
    std::memset(tensor.ptr, 0xFF, bytes);
    return tensor;
  }
  void clear() override {
    memory_.clear();
    scales_.clear();
  }

 private:
  Tensor copy(const Tensor& from) {
    const Tensor to = empty(from.dtype, from.shape);
    std::memcpy(to.ptr, from.ptr, static_cast<size_t>(from.bytes()));
    return to;
  }
  Tensor with_scale(Tensor tensor, const Fp8Scale& scale) {
    tensor.fp8 = &scales_.emplace_back(scale);
    return tensor;
  }

  Arena arena_;
  std::deque<std::unique_ptr<void, void (*)(void*)>> memory_;
  std::deque<Fp8Scale> scales_;
};

}  // namespace

UnderTest& dut() {
  static Host the;
  return the;
}

bool dut_exists() { return true; }

}  // namespace ladder::test
