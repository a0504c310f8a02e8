// Every collective, every dtype, sizes odd and zero, in host memory and on a device; and what is
// counted.

#include "tests/common/comm/on_device.h"

namespace ladder::test {
namespace {

const std::vector<Dtype> kCompared = {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16,
                                      Dtype::I32, Dtype::I64, Dtype::U8};

/// The memory of the host, used as DeviceMemory is.
struct HostMemory : Memory {
  explicit HostMemory(Comm&) {}
  template <class F>
  void expect(const Tensor& x, F&& expected) const {
    expect_elements(x, expected);
  }
};

/// Tensors in host memory, or on the device of this test program. On a device, what is communicated
/// is still queued when the communicator is called.
template <class Memory>
class EachCollective : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::is_same_v<Memory, DeviceMemory> && !open_test_device()) GTEST_SKIP() << "no GPU here";
  }
};
using Places = ::testing::Types<HostMemory, DeviceMemory>;
TYPED_TEST_SUITE(EachCollective, Places);

TYPED_TEST(EachCollective, AllReduce) {
  on_ranks([](Comm& comm) {
    TypeParam memory(comm);
    for (Dtype dtype : kSummed)
      for (int64_t n : kSizes) {
        const Tensor sums = memory.make(dtype, n, comm.rank());
        comm.all_reduce(sums);
        memory.expect(sums, [&](int64_t i) { return sum(comm.size(), i); });
      }
    for (Dtype dtype : kCompared)
      for (int64_t n : kSizes) {
        const Tensor most = memory.make(dtype, n, comm.rank());
        comm.all_reduce(most, Combine::Max);
        memory.expect(most, [&](int64_t i) { return value(comm.size() - 1, i); });
      }
  });
}

TYPED_TEST(EachCollective, ReduceScatterIntoAnotherTensorAndInPlace) {
  on_ranks([](Comm& comm) {
    TypeParam memory(comm);
    for (Dtype dtype : kSummed)
      for (int64_t n : kSizes) {
        const int64_t begin = comm.rank() * n;
        const auto expected = [&](int64_t i) { return sum(comm.size(), begin + i); };
        const Tensor inp = memory.make(dtype, n * comm.size(), comm.rank());
        const Tensor out = memory.make(dtype, n);
        comm.reduce_scatter(out, inp);
        memory.expect(out, expected);
        memory.expect(inp, [&](int64_t i) { return value(comm.rank(), i); });
        comm.reduce_scatter(inp.slice(begin, n), inp);
        memory.expect(inp.slice(begin, n), expected);
      }
  });
}

TYPED_TEST(EachCollective, AllGatherFromAnotherTensorAndInPlace) {
  on_ranks([](Comm& comm) {
    TypeParam memory(comm);
    for (Dtype dtype : kAll)
      for (int64_t n : kSizes) {
        const auto expected = [&](int64_t i) { return value(static_cast<int>(i / n), i % n); };
        const Tensor out = memory.make(dtype, n * comm.size());
        comm.all_gather(out, memory.make(dtype, n, comm.rank()));
        memory.expect(out, expected);
        const Tensor both = memory.make(dtype, n * comm.size());
        comm.all_gather(both, memory.fill(both.slice(comm.rank() * n, n), comm.rank()));
        memory.expect(both, expected);
      }
  });
}

TYPED_TEST(EachCollective, BroadcastFromEveryRank) {
  on_ranks([](Comm& comm) {
    TypeParam memory(comm);
    for (Dtype dtype : kAll)
      for (int64_t n : kSizes)
        for (int root = 0; root < comm.size(); ++root) {
          const Tensor data = memory.make(dtype, n, comm.rank());
          comm.broadcast(data, root);
          memory.expect(data, [&](int64_t i) { return value(root, i); });
        }
  });
}

TYPED_TEST(EachCollective, AllToAllTransposes) {
  on_ranks([](Comm& comm) {
    TypeParam memory(comm);
    for (Dtype dtype : kAll)
      for (int64_t n : kSizes) {
        const Tensor inp = memory.make(dtype, n * comm.size(), comm.rank());
        const Tensor out = memory.make(dtype, n * comm.size());
        comm.all_to_all(out, inp);
        memory.expect(out, [&](int64_t i) {
          return value(static_cast<int>(i / n), comm.rank() * n + i % n);
        });
      }
  });
}

TEST(Groups, Kind) {
  on_ranks([](Comm& comm) {
    EXPECT_EQ(comm.kind(), expected_kind(comm.size()));
    EXPECT_EQ(comm.split(comm.rank() % 2, 0)->kind(), comm.kind());
  });
}

TEST(Groups, MaximumOfNegativesAndNaN) {
  on_ranks([](Comm& comm) {
    Memory memory;
    const Tensor data = memory.make(Dtype::F32, 2);
    for (int with_nan = 0; with_nan < comm.size(); ++with_nan) {
      data.data<float>()[0] = static_cast<float>(-3 - comm.rank());
      data.data<float>()[1] = comm.rank() == with_nan ? std::nanf("") : 1e30F;
      comm.all_reduce(data, Combine::Max);
      EXPECT_EQ(data.data<float>()[0], -3.0F);
      EXPECT_TRUE(std::isnan(data.data<float>()[1]));
    }
  });
}

TEST(Groups, SplitByColorAndKey) {
  on_ranks([](Comm& comm) {
    Memory memory;
    // Even and odd ranks, in descending order.
    const std::unique_ptr<Comm> half = comm.split(comm.rank() % 2, -comm.rank());
    const int same = (comm.size() + 1 - comm.rank() % 2) / 2;
    EXPECT_EQ(half->size(), same);
    EXPECT_EQ(half->rank(), same - 1 - comm.rank() / 2);
    const Tensor ranks = memory.make(Dtype::I32, half->size());
    const Tensor mine = memory.make(Dtype::I32, 1);
    mine.data<int32_t>()[0] = comm.rank();
    half->all_gather(ranks, mine);
    for (int i = 0; i < same; ++i)
      EXPECT_EQ(ranks.data<int32_t>()[i], 2 * (same - 1 - i) + comm.rank() % 2);
    // Equal keys: in the order of ranks. The groups work side by side.
    const std::unique_ptr<Comm> all = comm.split(0, 0);
    EXPECT_EQ(all->rank(), comm.rank());
    const Tensor data = memory.make(Dtype::F32, 9, comm.rank());
    all->all_reduce(data);
    expect_elements(data, [&](int64_t i) { return sum(comm.size(), i); });
    EXPECT_EQ(comm.statistics().wire_bytes(), 0);
  });
}

TEST(Groups, Statistics) {
  on_ranks([](Comm& comm) {
    Memory memory;
    const int64_t N = comm.size(), n = 30, b = N * n * 4;
    const Tensor whole = memory.make(Dtype::F32, N * n, 0), part = memory.make(Dtype::F32, n, 0);
    const Tensor other = memory.make(Dtype::F32, N * n);
    comm.all_reduce(whole);
    comm.all_reduce(whole, Combine::Max);
    comm.reduce_scatter(part, whole);
    comm.all_gather(whole, part);
    comm.broadcast(whole, 0);
    comm.all_to_all(other, whole);
    using Count = OperationCount;
    const CommStatistics& counted = comm.statistics();
    EXPECT_EQ(counted[Operation::AllReduce], (Count{2, 2 * b, 2 * 2 * (N - 1) * b / N}));
    EXPECT_EQ(counted[Operation::ReduceScatter], (Count{1, b, (N - 1) * b / N}));
    EXPECT_EQ(counted[Operation::AllGather], (Count{1, b, (N - 1) * b / N}));
    EXPECT_EQ(counted[Operation::Broadcast], (Count{1, b, comm.rank() == 0 ? (N - 1) * b : 0}));
    EXPECT_EQ(counted[Operation::AllToAll], (Count{1, b, (N - 1) * b / N}));
    CommStatistics twice = counted;
    twice += counted;
    EXPECT_EQ(twice.wire_bytes(), 2 * counted.wire_bytes());
  });
}

TEST(Groups, RefusesWhatItCannotDo) {
  on_ranks([](Comm& comm) {
    Memory memory;
    const Tensor part = memory.make(Dtype::F32, 3),
                 odd = memory.make(Dtype::F32, 3 * comm.size() + 1);
    EXPECT_THROW(comm.reduce_scatter(part, odd), CheckError);
    EXPECT_THROW(comm.all_gather(odd, part), CheckError);
    EXPECT_THROW(comm.all_gather(part, memory.make(Dtype::I32, 3)), CheckError);
    EXPECT_THROW(comm.all_to_all(odd, odd), CheckError);
    EXPECT_THROW(comm.broadcast(part, comm.size()), CheckError);
    EXPECT_THROW(comm.all_reduce(memory.make(Dtype::U8, 3)), CheckError);
    EXPECT_THROW(comm.all_reduce(memory.make(Dtype::E4M3, 3), Combine::Max), CheckError);
    EXPECT_THROW(comm.send(part, comm.rank()), CheckError);
    EXPECT_THROW(comm.recv(part, -1), CheckError);
    comm.attach(nullptr);
    EXPECT_THROW(comm.all_reduce({.place = Place::Device, .shape = {0}}), CheckError);
    EXPECT_EQ(comm.statistics().wire_bytes(), 0);
  });
}

}  // namespace
}  // namespace ladder::test
