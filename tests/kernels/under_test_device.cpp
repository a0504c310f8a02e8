// A device under test: the stand-in, or a GPU, as LADDER_CUDA says.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/table.h"
#include "kernels/device.h"
#include "tests/kernels/under_test.h"

namespace ladder::test {
namespace {

namespace dev = ladder::LADDER_CUDA;

void free_at(Device& device, Place place, void* memory) {
  if (place == Place::Host)
    std::free(memory);
  else if (place == Place::Shared)
    device.free_shared(memory);
  else
    device.free(memory);
}

class DeviceUnderTest : public UnderTest {
 public:
  DeviceUnderTest();

  Tensor upload(const Tensor& host) override;
  Tensor download(const Tensor& device) override;
  Tensor empty(Dtype dtype, Shape shape) override;
  Tensor share(const Tensor& host) override;
  bool limit_shared(int64_t bytes) override {
    dev::device_of(ctx).limit_shared(bytes);
    return true;
  }
  bool use_hopper(bool used) override {
    dev::device_of(ctx).use_hopper(used);
    return true;
  }
  void clear() override;

 private:
  void* take(Place place, int64_t bytes);

  struct Memory {
    Place place;
    void* at;
  };
  std::unique_ptr<Device> device_;
  Tensor scratch_;
  std::deque<Memory> memory_;
  std::deque<Fp8Scale> host_scales_;
};

DeviceUnderTest::DeviceUnderTest() {
  ctx.kernels = &dev::kernels();
  if (dev::device_count() == 0) return;  // every test is skipped
  device_ = dev::open_device(0);
  ctx.device = device_.get();
  scratch_ = {.ptr = device_->allocate(dev::kScratchBytes),
              .dtype = Dtype::U8,
              .place = Place::Device,
              .shape = {1, dev::kScratchBytes}};
  ctx.scratch = scratch_;
}

void* DeviceUnderTest::take(Place place, int64_t bytes) {
  void* memory = nullptr;
  if (place == Place::Host)
    memory = std::malloc(static_cast<size_t>(bytes));
  else
    memory = place == Place::Shared ? device_->allocate_shared(bytes) : device_->allocate(bytes);
  CHECK(memory, "no memory for a test: {} bytes", bytes);
  memory_.push_back({place, memory});
  return memory;
}

Tensor DeviceUnderTest::empty(Dtype dtype, Shape shape) {
  Tensor tensor{.dtype = dtype, .place = Place::Device, .shape = shape};
  tensor.ptr = take(Place::Device, tensor.bytes());
  device_->fill(tensor.ptr, 0xFF, tensor.bytes());
  return tensor;
}

Tensor DeviceUnderTest::upload(const Tensor& host) {
  Tensor tensor = empty(host.dtype, host.shape);
  device_->copy(tensor.ptr, host.ptr, tensor.bytes());
  device_->synchronize();
  if (host.fp8) {
    tensor.fp8 = static_cast<Fp8Scale*>(take(Place::Shared, sizeof(Fp8Scale)));
    *tensor.fp8 = *host.fp8;
  }
  return tensor;
}

Tensor DeviceUnderTest::share(const Tensor& host) {
  Tensor tensor{.dtype = host.dtype, .place = Place::Shared, .shape = host.shape};
  tensor.ptr = take(Place::Shared, tensor.bytes());
  std::memcpy(tensor.ptr, host.ptr, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

Tensor DeviceUnderTest::download(const Tensor& device) {
  Tensor tensor = device;
  tensor.place = Place::Host;
  tensor.ptr = take(Place::Host, tensor.bytes());
  device_->copy(tensor.ptr, device.ptr, tensor.bytes());
  device_->synchronize();
  if (device.fp8) tensor.fp8 = &host_scales_.emplace_back(*device.fp8);
  return tensor;
}

void DeviceUnderTest::clear() {
  device_->synchronize();
  for (const Memory& memory : memory_) free_at(*device_, memory.place, memory.at);
  memory_.clear();
  host_scales_.clear();
}

}  // namespace

UnderTest& dut() {
  static DeviceUnderTest the;
  return the;
}

bool dut_exists() { return dev::device_count() > 0; }

}  // namespace ladder::test
