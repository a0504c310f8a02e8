// Tests that need a LateDevice: sums in many pieces, and a device that fails.

#include "tests/common/comm/late_device.h"

#include <thread>

#include "common/comm/comm_queue.h"
#include "common/comm/failure.h"
#include "common/comm/nccl_comm.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "common/comm/self_comm.h"
#include "common/error.h"
#include "tests/common/comm/on_device.h"

namespace ladder::test {
namespace {

TEST(LateDevice, SumsInManyPieces) {
  for (int ranks : {2, 3})
    run_threads(ranks, [](Comm& comm) {
      DeviceMemory memory(comm);
      // The room for what arrives is used again and again.
      constexpr int64_t n = 4 * Collectives::kPiece + 5;
      Collectives collectives(comm, memory.ctx(), Reduction::Tree, memory.arena(), Dtype::F32, n);
      const Tensor data = memory.make(Dtype::F32, n, comm.rank());
      collectives.all_reduce(data);
      memory.expect(data, [&](int64_t i) { return sum(comm.size(), i); });
    });
}

/// When it is told to, its copies fail like those of a broken GPU.
class FailingDevice final : public LateDevice {
 public:
  bool fails = false;
  void synchronize() override {
    LateDevice::synchronize();
    if (fails && copied_) throw CheckError("the device is gone");
  }
  void copy(void* out, const void* inp, int64_t bytes) override {
    LateDevice::copy(out, inp, bytes);
    copied_ = true;
  }

 private:
  bool copied_ = false;
};

TEST(LateDevice, OneThatFailsEndsAllRanks) {
  const std::vector<std::function<void(Comm&, Tensor, Tensor)>> kOperations = {
      [](Comm& comm, Tensor data, Tensor) { comm.all_reduce(data); },
      [](Comm& comm, Tensor data, Tensor part) { comm.all_gather(data, part); },
      [](Comm& comm, Tensor data, Tensor) { comm.broadcast(data, 0); },
      [](Comm& comm, Tensor data, Tensor) {
        // Rank 1 copies: it comes second.
        if (comm.rank() == 0) comm.send(data, 1);
        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (comm.rank() == 1) comm.recv(data, 0);
        comm.barrier();
      }};
  for (const auto& operation : kOperations) {
    const Failure end = failure_of(3, [&](Comm& comm) {
      FailingDevice device;
      Arena arena(&device);
      comm.attach(&device);
      const Tensor data = arena.zeros(Mem::Comm, "data", Dtype::F32, {300});
      const Tensor part = arena.zeros(Mem::Comm, "part", Dtype::F32, {100});
      device.fails = comm.rank() == 1;
      operation(comm, data, part);
      comm.barrier();
    });
    EXPECT_EQ(end.line, "internal error: rank 1: the device is gone");
  }
}

/// Knows the thread that uses it.
class DeviceOfAThread final : public LateDevice {
 public:
  std::thread::id user;
  void use_here() override { user = std::this_thread::get_id(); }
};

TEST(LateDevice, IsThatOfTheThreadBeside) {
  SelfComm comm;
  DeviceOfAThread device;
  comm.attach(&device);
  CommQueue queue(comm);
  bool its_own = false;
  queue.run([&] { its_own = device.user == std::this_thread::get_id(); }).wait();
  EXPECT_TRUE(its_own);
}

TEST(LateDevice, IsNoneForNccl) {
  SelfComm comm;
  LateDevice late;
  for (Device* device : {static_cast<Device*>(nullptr), static_cast<Device*>(&late)})
    EXPECT_THROW(open_nccl(comm, device), UserError);
}

}  // namespace
}  // namespace ladder::test
