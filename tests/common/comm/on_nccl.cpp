// The main() of tests of NcclComm under mpirun: as on_mpi.cpp, with tensors on a GPU.

#include <cstdio>

#include "common/comm/nccl_comm.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_device.h"

namespace ladder::test {
namespace {

/// What ctest takes for "skipped".
constexpr int kSkipped = 77;

Comm* world = nullptr;

TEST_F(DeviceTensors, AMaximumKeepsNaN) {
  on_ranks([](Comm& comm) {
    DeviceMemory memory(comm);
    const Tensor data = memory.make(Dtype::F32, 1);
    for (int with_nan = 0; with_nan < comm.size(); ++with_nan) {
      const float mine = comm.rank() == with_nan ? std::nanf("") : 1e30F;
      memory.ctx().device->copy(data.ptr, &mine, sizeof mine);
      comm.all_reduce(data, Combine::Max);
      EXPECT_TRUE(std::isnan(*HostCopy::of(memory.ctx(), data).tensor().data<float>()));
    }
  });
}

TEST_F(DeviceTensors, AnExchangeLeftAloneIsTakenBack) {
  on_ranks([](Comm& comm) {
    if (comm.size() == 1) return;
    const std::unique_ptr<Comm> lost = comm.split(0, comm.rank());
    DeviceMemory memory(*lost);
    const Tensor data = memory.make(Dtype::F32, 100, comm.rank());
    const int next = (comm.rank() + 1) % comm.size();
    const int before = (comm.rank() + comm.size() - 1) % comm.size();
    // Once in full: the first contact with a peer blocks until it comes, and none would.
    lost->exchange(memory.make(Dtype::F32, 100, comm.rank()), before, data, next);
    // From the next one, which sends nothing: it would wait forever.
    { Pending forgotten = lost->iexchange({}, 0, data, next); }
    EXPECT_THROW(lost->all_reduce(data), Aborted);
  });
}

}  // namespace

void on_ranks(const std::function<void(Comm&)>& body) {
  const std::unique_ptr<Comm> fresh = world->split(0, world->rank());
  body(*fresh);
}

std::string expected_kind(int) { return "nccl"; }

}  // namespace ladder::test

int main(int argc, char** argv) {
  using namespace ladder;
  testing::InitGoogleTest(&argc, argv);
  const std::unique_ptr<Device> device = test::open_test_device();
  if (!device) {
    std::puts("skipped: no GPU here");
    return test::kSkipped;
  }
  int failed = 0;
  run_ranks(1, [&](Comm& comm) {
    const std::unique_ptr<Comm> nccl = open_nccl(comm, device.get());
    test::world = nccl.get();
    failed = RUN_ALL_TESTS();
  });
  return failed;
}
