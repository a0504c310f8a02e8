// Where experts should lie once their loads are known. In a run of chapter 22 they stay where they
// are; --loads says what a placement by load would have saved.
//
// A rank with heavy experts works while the others wait. Heavy means with a large load. Two things
// help: heavy experts get several copies, which take equal numbers of their tokens, and heavy
// copies lie beside light ones. The three steps are those of the README of DeepSeek's EPLB:
//
//   1. Groups of neighboring experts go to nodes. Some routers take all experts of a token from few
//      groups; such a token then goes to few nodes.
//   2. Within a node heavy experts get more copies.
//   3. Within a node copies go to ranks.
//
// If the number of nodes does not divide the number of groups, all experts are one group and all
// ranks one node. An example with four experts, six copies and two ranks:
//
//   expert              0   1   2   3
//   load               90  30  50  30    in order, 0 and 1 on a rank, 2 and 3: 120 and 80
//   copies            2   1   2   1
//   load of a copy  45  30  25  30
//   rank 0             0 (45)  1 (30)  2 (25)    100
//   rank 1             0 (45)  3 (30)  2 (25)    100
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/check.h"

namespace ladder::planner {

struct PlacementShape {
  int64_t experts, copies;  ///< of a layer; an expert that lies on one rank is one copy
  int64_t ranks;            ///< of all nodes; ranks have equal numbers of copies
  int64_t nodes = 1;        ///< nodes have equal numbers of ranks
  int64_t groups = 1;       ///< of neighboring experts
};

/// The expert of each copy, rank after rank.
using Placement = std::vector<int64_t>;

/// One copy of each expert, in order: how the ranks of a run have them.
inline Placement aligned_experts(int64_t experts) {
  Placement all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Deals items with these loads to packs of equal size: the heaviest item first, always to the
/// lightest pack that is not full. Among equals the first is taken. With one item to a pack nothing
/// is moved, since no order would be more even.
/// @return items, pack after pack, in the order in which a pack got them
inline std::vector<int64_t> deal(std::span<const double> loads, int64_t packs) {
  const int64_t room = div_exact(int64_t{std::ssize(loads)}, packs);
  std::vector<int64_t> heaviest = aligned_experts(std::ssize(loads));
  if (room == 1) return heaviest;
  std::ranges::stable_sort(heaviest, [&](int64_t a, int64_t b) { return loads[a] > loads[b]; });
  std::vector<int64_t> items(loads.size()), filled(packs);
  std::vector<double> load(packs);
  for (const int64_t item : heaviest) {
    int64_t lightest = -1;
    for (int64_t pack = 0; pack < packs; ++pack)
      if (filled[pack] < room && (lightest < 0 || load[pack] < load[lightest])) lightest = pack;
    items[lightest * room + filled[lightest]++] = item;
    load[lightest] += loads[item];
  }
  return items;
}

/// The expert of each copy: first one of each expert, then always one more of the expert whose
/// copies have the largest load each. Among equals the first is taken.
inline std::vector<int64_t> copy_experts(std::span<const int64_t> loads, int64_t copies) {
  std::vector<int64_t> experts = aligned_experts(std::ssize(loads)), count(loads.size(), 1);
  while (std::ssize(experts) < copies) {
    size_t most = 0;
    // loads / count is compared without a division, so without rounding.
    for (size_t e = 1; e < loads.size(); ++e)
      if (loads[e] * count[most] > loads[most] * count[e]) most = e;
    experts.push_back(static_cast<int64_t>(most));
    ++count[most];
  }
  return experts;
}

/// How many copies each expert has.
inline std::vector<int64_t> count_copies(const Placement& placement, int64_t experts) {
  std::vector<int64_t> count(static_cast<size_t>(experts));
  for (const int64_t e : placement) ++count[e];
  return count;
}

/// Steps 2 and 3: the experts of one node, with these loads, on its ranks.
inline Placement place_on_node(std::span<const int64_t> loads, int64_t copies, int64_t ranks) {
  const std::vector<int64_t> experts = copy_experts(loads, copies);
  const std::vector<int64_t> count = count_copies(experts, std::ssize(loads));
  std::vector<double> each;
  for (const int64_t e : experts)
    each.push_back(static_cast<double>(loads[e]) / static_cast<double>(count[e]));
  Placement placement;
  for (const int64_t copy : deal(each, ranks)) placement.push_back(experts[copy]);
  return placement;
}

/// The three steps, for the loads of one layer.
inline Placement place_experts(std::span<const int64_t> loads, PlacementShape shape) {
  CHECK(std::ssize(loads) == shape.experts, "{} loads of {} experts", loads.size(), shape.experts);
  if (shape.groups % shape.nodes != 0) shape.groups = shape.nodes = 1;  // the global placement
  const int64_t of_group = div_exact(shape.experts, shape.groups);
  std::vector<double> group_loads;
  for (int64_t g = 0; g < shape.groups; ++g) {
    const auto of = loads.subspan(g * of_group, of_group);
    group_loads.push_back(static_cast<double>(std::accumulate(of.begin(), of.end(), int64_t{0})));
  }
  const std::vector<int64_t> groups = deal(group_loads, shape.nodes);

  Placement placement;
  for (int64_t node = 0; node < shape.nodes; ++node) {
    std::vector<int64_t> experts, own_loads;
    const int64_t each = shape.groups / shape.nodes;
    for (int64_t i = 0; i < each * of_group; ++i) {
      experts.push_back(groups[node * each + i / of_group] * of_group + i % of_group);
      own_loads.push_back(loads[experts.back()]);
    }
    for (const int64_t e : place_on_node(own_loads, div_exact(shape.copies, shape.nodes),
                                         div_exact(shape.ranks, shape.nodes)))
      placement.push_back(experts[e]);
  }
  return placement;
}

}  // namespace ladder::planner
