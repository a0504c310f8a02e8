// Messages and reductions over tensors of a device. What is communicated is still queued when the
// communicator is called, and what arrives is used by what is queued afterwards.

#include "common/comm/comm_queue.h"
#include "common/comm/reduction.h"
#include "tests/common/comm/on_device.h"

namespace ladder::test {
namespace {

TEST_F(DeviceTensors, SharedWithTheHost) {
  on_ranks([](Comm& comm) {
    DeviceMemory memory(comm);
    const Tensor limbs = memory.arena().shared(Mem::Comm, "limbs", Dtype::I64, {9});
    memory.fill(limbs, comm.rank());
    comm.all_reduce(limbs);
    expect_elements(limbs, [&](int64_t i) { return sum(comm.size(), i); });
  });
}

TEST_F(DeviceTensors, Messages) {
  on_ranks([](Comm& comm) {
    if (comm.size() == 1) return;
    DeviceMemory memory(comm);
    const int next = (comm.rank() + 1) % comm.size();
    const int before = (comm.rank() + comm.size() - 1) % comm.size();
    const Tensor token = memory.make(Dtype::F32, 333);
    const Tensor twice = memory.make(Dtype::F32, 333, comm.rank());
    // Each is passed on as soon as it has arrived, and overwritten while kernels read it.
    memory.ctx().kernels->add(memory.ctx(), twice, twice, twice);
    comm.exchange(twice, next, token, before);
    memory.ctx().kernels->add(memory.ctx(), twice, token, twice);
    Pending receiving = comm.irecv(token, before);
    Pending sending = comm.isend(twice, next);
    sending.wait();
    receiving.wait();
    const int second = (before + comm.size() - 1) % comm.size();
    memory.expect(token, [&](int64_t i) { return 2 * (value(before, i) + value(second, i)); });
    memory.expect(twice, [&](int64_t i) { return 2 * (value(comm.rank(), i) + value(before, i)); });
  });
}

TEST_F(DeviceTensors, GroupsReachTheDeviceToo) {
  on_ranks([](Comm& comm) {
    DeviceMemory memory(comm);
    const std::unique_ptr<Comm> group = comm.split(0, -comm.rank());
    const Tensor data = memory.make(Dtype::F32, 9, comm.rank());
    group->all_reduce(data);
    memory.expect(data, [&](int64_t i) { return sum(comm.size(), i); });
    group->attach(nullptr);
    EXPECT_THROW(group->all_reduce(data), CheckError);
  });
}

/// Sums over ranks twice, with a kernel between them, by both halves and as a whole.
Tensor reduced(Comm& comm, const Ctx& ctx, Arena& arena, Reduction reduction, Tensor data) {
  Collectives collectives(comm, ctx, reduction, arena, data.dtype, data.size());
  const Chunks chunks{data.size(), comm.size()};
  collectives.reduce_scatter(data, chunks);
  collectives.all_gather(data, chunks);
  const Tensor head = data.first(data.size() / 3), tail = data.slice(data.size() / 3, head.size());
  ctx.kernels->add(ctx, head, head, tail);
  collectives.all_reduce(data);
  return data;
}

TEST_F(DeviceTensors, ReductionsHaveTheBitsOfTheHost) {
  on_ranks([](Comm& comm) {
    const int64_t n = 60 * comm.size();
    for (Reduction reduction : {Reduction::Halving, Reduction::Tree, Reduction::Ring,
                                Reduction::Naive, Reduction::Native}) {
      if (reduction == Reduction::Halving && comm.size() & (comm.size() - 1)) continue;
      // Beyond two ranks NCCL adds in another order than who serves the host.
      if (reduction == Reduction::Native && comm.kind() == "nccl" && comm.size() > 2) continue;
      SCOPED_TRACE(std::string(to_string(reduction)));
      DeviceMemory memory(comm);
      Memory host;
      const Tensor want = host.make(Dtype::F32, n), data = memory.make(Dtype::F32, n);
      for (int64_t i = 0; i < n; ++i)
        want.data<float>()[i] = std::ldexp(i % 3 ? 1.0F : -1.0F / 7, (comm.rank() * 7 + i) % 19);
      memory.ctx().device->copy(data.ptr, want.ptr, want.bytes());
      memory.ctx().synchronize();
      reduced(comm, memory.ctx(), memory.arena(), reduction, data);
      reduced(comm, ctx_of(cpu_kernels()), host.arena(), reduction, want);
      EXPECT_TRUE(memory.same_bits(data, want));
    }
  });
}

TEST_F(DeviceTensors, AQueueHasADeviceOfItsOwn) {
  on_ranks([](Comm& comm) {
    DeviceMemory memory(comm);
    const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
    DeviceMemory its(*beside);
    constexpr int64_t n = 500;
    // A sum on a ring ends with an addition.
    Collectives collectives(*beside, its.ctx(), Reduction::Ring, its.arena(), Dtype::F32, n);
    CommQueue queue(*beside);
    const Tensor bucket = memory.make(Dtype::F32, n, comm.rank());
    memory.ctx().synchronize();
    Pending pending = queue.run([&] { collectives.reduce_scatter(bucket, {n, comm.size()}); });
    const Tensor other = memory.make(Dtype::F32, n, comm.rank());
    comm.all_reduce(other);
    pending.wait();
    const Range mine = Chunks{n, comm.size()}[comm.rank()];
    const Tensor chunk = bucket.slice(mine.begin, mine.size());
    memory.ctx().kernels->add(memory.ctx(), chunk, chunk, chunk);
    memory.expect(chunk, [&](int64_t i) { return 2 * sum(comm.size(), mine.begin + i); });
    memory.expect(other, [&](int64_t i) { return sum(comm.size(), i); });
  });
}

}  // namespace
}  // namespace ladder::test
