// LateDevice: a device that does nothing before synchronize(). Its memory is the host's, so that it
// runs everywhere. The stand-in for a GPU does its work at once, and a GPU mostly in time. This
// device shows every place where the program should have waited.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/arena.h"
#include "kernels/device.h"
#include "kernels/kernels.h"

namespace ladder::test {

class LateDevice : public Device {
 public:
  void queue(std::function<void()> work) { queue_.push_back(std::move(work)); }

  std::string name() const override { return "one that does nothing before it must"; }
  void* allocate(int64_t bytes) override {
    return std::aligned_alloc(kPage, static_cast<size_t>((bytes + kPage - 1) / kPage * kPage));
  }
  void* allocate_shared(int64_t bytes) override { return allocate(bytes); }
  // A GPU's free() waits, too.
  void free(void* memory) noexcept override {
    LateDevice::synchronize();
    std::free(memory);
  }
  void free_shared(void* memory) noexcept override { LateDevice::free(memory); }
  void fill(void* memory, uint8_t value, int64_t bytes) override {
    queue([=] { std::memset(memory, value, static_cast<size_t>(bytes)); });
  }
  void copy(void* out, const void* inp, int64_t bytes) override {
    if (bytes > 0) queue([=] { std::memmove(out, inp, static_cast<size_t>(bytes)); });
  }
  void synchronize() override {
    for (const std::function<void()>& work : std::exchange(queue_, {})) work();
  }

 private:
  static constexpr int64_t kPage = 256;
  std::vector<std::function<void()>> queue_;
};

/// Kernels of `ref`, but `add` is queued. It is the only one that sums over ranks need.
inline const Kernels& late_kernels() {
  static const Kernels table = [] {
    Kernels kernels = ref_kernels();
    kernels.add = [](const Ctx& ctx, Tensor out, Tensor a, Tensor b) {
      out.place = a.place = b.place = Place::Host;
      dynamic_cast<LateDevice&>(*ctx.device).queue([=] {
        Ctx host;
        host.kernels = &cpu_kernels();
        host.kernels->add(host, out, a, b);
      });
    };
    return kernels;
  }();
  return table;
}

}  // namespace ladder::test
