// Messages between two ranks.

#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

TEST(Messages, AroundTheRing) {
  on_ranks([](Comm& comm) {
    if (comm.size() == 1) return;
    Memory memory;
    const int next = (comm.rank() + 1) % comm.size();
    const int before = (comm.rank() + comm.size() - 1) % comm.size();
    int64_t bytes = 0;
    for (Dtype dtype : kAll)
      for (int64_t n : kSizes) {
        const Tensor out = memory.make(dtype, n, comm.rank()), inp = memory.make(dtype, n);
        comm.exchange(out, next, inp, before);
        expect_elements(inp, [&](int64_t i) { return value(before, i); });
        bytes += out.bytes();
      }
    // Empty ones do not travel.
    const auto messages = static_cast<int64_t>(kAll.size() * (kSizes.size() - 1));
    EXPECT_EQ(comm.statistics()[Operation::Send], (OperationCount{messages, bytes, bytes}));
    EXPECT_EQ(comm.statistics()[Operation::Recv], (OperationCount{messages, bytes, 0}));
  });
}

TEST(Messages, BlockingFromNeighborToNeighbor) {
  on_ranks([](Comm& comm) {
    Memory memory;
    const Tensor token = memory.make(Dtype::I64, 1);
    token.data<int64_t>()[0] = 0;
    if (comm.rank() > 0) comm.recv(token, comm.rank() - 1);
    EXPECT_EQ(token.data<int64_t>()[0], comm.rank());
    ++token.data<int64_t>()[0];
    if (comm.rank() + 1 < comm.size()) comm.send(token, comm.rank() + 1);
  });
}

TEST(Messages, KeepTheirOrder) {
  on_ranks([](Comm& comm) {
    if (comm.rank() > 1 || comm.size() == 1) return;
    Memory memory;
    const int other = 1 - comm.rank();
    constexpr int kCount = 8;
    const Tensor out = memory.make(Dtype::F32, kCount, comm.rank());
    const Tensor inp = memory.make(Dtype::F32, kCount);
    std::vector<Pending> pending;
    for (int i = 0; i < kCount; ++i) {
      pending.push_back(comm.isend(out.slice(i, 1), other));
      pending.push_back(comm.irecv(inp.slice(i, 1), other));
    }
    // Whichever is waited for first.
    for (auto it = pending.rbegin(); it != pending.rend(); ++it) it->wait();
    pending.front().wait();
    expect_elements(inp, [&](int64_t i) { return value(other, i); });
  });
}

TEST(Messages, EveryPairAtOnce) {
  on_ranks([](Comm& comm) {
    Memory memory;
    std::vector<Pending> pending;
    std::vector<Tensor> arrived;
    for (int peer = 0; peer < comm.size(); ++peer) {
      arrived.push_back(memory.make(Dtype::F32, 333));
      if (peer == comm.rank()) continue;
      pending.push_back(comm.irecv(arrived.back(), peer));
      pending.push_back(comm.isend(memory.make(Dtype::F32, 333, comm.rank()), peer));
    }
    for (Pending& one : pending) one.wait();
    for (int peer = 0; peer < comm.size(); ++peer)
      if (peer != comm.rank())
        expect_elements(arrived[peer], [&](int64_t i) { return value(peer, i); });
  });
}

}  // namespace
}  // namespace ladder::test
