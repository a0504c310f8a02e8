// All-reduces on nodes, over a communicator that counts what leaves a node.
#include "labs/check.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "common/run/backend.h"
#include "common/run/options.h"
#include "labs/07x_hierarchical/hierarchical.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::seconds kPatience{5};

/// Messages alone, each counted that goes to another node.
class CountingComm : public Comm {
 public:
  CountingComm(Comm& comm, int per_node)
      : Comm(comm.rank(), comm.size()), comm_(comm), per_node_(per_node) {}
  std::string_view kind() const override { return "counting"; }
  void abandon() noexcept override { comm_.abandon(); }

  int64_t bytes() const { return bytes_; }
  int64_t messages() const { return messages_; }

 private:
  Pending do_isend(Tensor data, int to) override {
    if (to / per_node_ != rank() / per_node_ && data.size() > 0) {
      bytes_ += data.bytes();
      ++messages_;
    }
    return comm_.isend(data, to);
  }
  Pending do_irecv(Tensor data, int from) override { return comm_.irecv(data, from); }

  [[noreturn]] static void refuse() {
    throw CheckError("a collective or split() was called; this lab allows messages only");
  }
  void do_all_reduce(Tensor, Combine) override { refuse(); }
  void do_reduce_scatter(Tensor, Tensor, Combine) override { refuse(); }
  void do_all_gather(Tensor, Tensor) override { refuse(); }
  void do_broadcast(Tensor, int) override { refuse(); }
  void do_all_to_all(Tensor, Tensor) override { refuse(); }
  void do_barrier() override { refuse(); }
  std::unique_ptr<Comm> do_split(int, int) override { refuse(); }

  Comm& comm_;
  int per_node_;
  int64_t bytes_ = 0, messages_ = 0;
};

struct Nodes {
  int count, per_node;
  int64_t n;  ///< numbers of each rank

  int ranks() const { return count * per_node; }
};

/// What a rank has afterwards, and what it has sent to other nodes.
struct Found {
  std::vector<float> sum;
  int64_t bytes = 0, messages = 0;
};

/// Of each rank, if `reduce(comm, ctx, arena, data)` is the all-reduce.
template <class Reduce>
std::vector<Found> reduce_all(const Sheet& sheet, const Nodes& nodes, Reduce&& reduce) {
  std::vector<Found> found(static_cast<size_t>(nodes.ranks()));
  const auto body = [&](Comm& threads) {
    CountingComm comm(threads, nodes.per_node);
    RunOptions run;
    run.threads = 1;
    Arena arena;
    const Ctx ctx = make_ctx(run, arena, nullptr, {.comm = &comm});
    const Tensor data = arena.alloc(Mem::Grad, "data", Dtype::F32, {nodes.n});
    const auto stream = static_cast<uint64_t>(comm.rank());
    std::ranges::copy(sheet.normals("numbers", nodes.n, stream), data.data<float>());
    reduce(comm, ctx, arena, data);
    found[stream] = {.sum{data.data<float>(), data.data<float>() + nodes.n},
                     .bytes = comm.bytes(),
                     .messages = comm.messages()};
  };
  run_threads(nodes.ranks(), body, kPatience);
  return found;
}

/// Sums of all ranks, and the figures of the busiest.
void write(Sheet& sheet, const std::vector<Found>& found) {
  for (size_t r = 0; r < found.size(); ++r) sheet.bits(fmt::format("sum/rank {}", r), found[r].sum);
}

void run_case(Sheet& sheet, const Nodes& nodes) {
  const auto tree = [&](Comm& comm, const Ctx& ctx, Arena& arena, Tensor data) {
    Reducer(comm, ctx, Reduction::Tree, arena, Dtype::F32, nodes.n).all_reduce(data);
  };
  const int64_t others = nodes.count - 1;
  const bool equal = nodes.n % nodes.ranks() == 0;  // a part for each rank
  sheet.wanted([&] {
    write(sheet, reduce_all(sheet, nodes, tree));
    if (!equal) return;
    sheet.count("bytes", 2 * others * 4 * nodes.n / nodes.ranks());
    sheet.count("messages", 2 * others);
  });
  // What `tree` broadcasts from rank 0, and the messages of a ring of all ranks.
  sheet.without_idea("bytes", std::bit_width(static_cast<uint64_t>(others)) * 4 * nodes.n);
  sheet.without_idea("messages", 2 * (nodes.ranks() - 1));

  const auto found =
      reduce_all(sheet, nodes, [&](Comm& comm, const Ctx& ctx, Arena& arena, Tensor data) {
        const Tensor arrived = arena.alloc(Mem::Comm, "arrived", Dtype::F32, {nodes.n});
        hierarchical_all_reduce(comm, ctx, data, arrived, nodes.per_node);
      });
  write(sheet, found);
  sheet.count("bytes", std::ranges::max(found, {}, &Found::bytes).bytes);
  sheet.count("messages", std::ranges::max(found, {}, &Found::messages).messages);
}

void cases(Sheet& sheet) {
  const int many = sheet.pick("nodes", {5, 6});
  const auto each = sheet.pick<int64_t>("each", {16, 40, 64}),
             odd = sheet.pick<int64_t>("odd", {37, 101});
  for (const auto& [count, per_node] : {std::pair{3, 2}, {3, 4}, {many, 2}})
    for (const int64_t n : {each * count * per_node, odd})
      sheet.run(fmt::format("{} nodes of {} ranks, {} numbers", count, per_node, n),
                [&] { run_case(sheet, {.count = count, .per_node = per_node, .n = n}); });
}

}  // namespace
}  // namespace ladder::lab

int main() { return ladder::lab::measure(ladder::lab::cases); }
