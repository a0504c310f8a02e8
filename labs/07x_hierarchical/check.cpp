// All-reduces on nodes, over a communicator that counts what leaves a node.
#include "labs/check.h"

#include <bit>
#include <cstddef>
#include <string>
#include <vector>

#include "common/comm/reduction.h"
#include "labs/07x_hierarchical/hierarchical.h"
#include "labs/messages_only.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

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

/// What each rank has if `reduce(comm, ctx, arena, data)` is the all-reduce.
template <class Reduce>
std::vector<Found> reduce_all(const Sheet& sheet, const Nodes& nodes, Reduce&& reduce) {
  return on_ranks<Found>(nodes.ranks(), [&](Comm& threads, Found& found) {
    CountingComm comm(threads, nodes.per_node);
    OneRank rank(comm);
    const Tensor data = rank.arena.alloc(Mem::Grad, "data", Dtype::F32, {nodes.n});
    sheet.draw(data, "numbers", static_cast<uint64_t>(comm.rank()));
    reduce(comm, rank.ctx, rank.arena, data);
    found = {.sum = numbers(data), .bytes = comm.bytes(), .messages = comm.messages()};
  });
}

/// Writes the sum that each rank has.
void write(Sheet& sheet, const std::vector<Found>& found) {
  for (size_t r = 0; r < found.size(); ++r) sheet.bits(fmt::format("sum/rank {}", r), found[r].sum);
}

void run_case(Sheet& sheet, const Nodes& nodes) {
  const auto tree = [&](Comm& comm, const Ctx& ctx, Arena& arena, Tensor data) {
    Collectives(comm, ctx, Reduction::Tree, arena, Dtype::F32, nodes.n).all_reduce(data);
  };
  const int64_t others = nodes.count - 1;
  const bool equal = others > 0 && nodes.n % nodes.ranks() == 0;  // a part for each rank
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
  sheet.count("bytes", most_of(found, &Found::bytes));
  sheet.count("messages", most_of(found, &Found::messages));
}

}  // namespace

void cases(Sheet& sheet) {
  const int many = sheet.pick("nodes", {5, 6});
  const auto each = sheet.pick<int64_t>("each", {16, 40, 64}),
             odd = sheet.pick<int64_t>("odd", {37, 101});
  for (const auto& [count, per_node] : {std::pair{3, 2}, {3, 4}, {many, 2}, {1, 4}})
    for (const int64_t n : {each * count * per_node, odd})
      sheet.run(fmt::format("{} node{} of {} ranks, {} numbers", count, count > 1 ? "s" : "",
                            per_node, n),
                [&] { run_case(sheet, {.count = count, .per_node = per_node, .n = n}); });
}

}  // namespace ladder::lab
