// The shape of a mesh of ranks. A rank has a coordinate, which is its number along each axis.
//
//   rank = t + TP (c + CP (s + S (g + R p)))
//
// t, c, s, g and p are its numbers along Tensor, Context, Data, Replica and Pipeline; TP, CP, S and
// R are how many ranks the first four have. The first axis is the fastest: its ranks are neighbors.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "common/names.h"

namespace ladder {

/// What the ranks along an axis split: each layer, each sequence, the batch, or the depth. Where
/// states are sharded, ranks along Data hold shards of them, and those along Replica the same shard
/// (chapter 30).
enum class Axis : uint8_t { Tensor, Context, Data, Replica, Pipeline };
constexpr std::array kAxes{Axis::Tensor, Axis::Context, Axis::Data, Axis::Replica, Axis::Pipeline};
constexpr auto names_of(Axis) { return std::array{"tp", "cp", "dp", "replicas", "pp"}; }

/// A value for each axis. It is T{} unless another is given.
template <class T>
class PerAxis {
 public:
  PerAxis() = default;
  PerAxis(std::initializer_list<std::pair<Axis, T>> some) {
    for (const auto& [axis, value] : some) (*this)[axis] = value;
  }
  T& operator[](Axis axis) { return values_[static_cast<size_t>(axis)]; }
  const T& operator[](Axis axis) const { return values_[static_cast<size_t>(axis)]; }
  bool operator==(const PerAxis&) const = default;

 private:
  std::array<T, kAxes.size()> values_{};
};

/// The coordinate of a rank: its number along each axis.
using MeshCoordinate = PerAxis<int>;

/// How many ranks there are along each axis: 1 unless another number is given.
class MeshShape {
 public:
  MeshShape(std::initializer_list<std::pair<Axis, int>> sizes = {}) {
    for (const Axis axis : kAxes) sizes_[axis] = 1;
    for (const auto& [axis, size] : sizes) sizes_[axis] = size;
  }
  int operator[](Axis axis) const { return sizes_[axis]; }
  int& operator[](Axis axis) { return sizes_[axis]; }

  /// The number of all ranks.
  int size() const {
    int all = 1;
    for (const Axis axis : kAxes) all *= sizes_[axis];
    return all;
  }
  MeshCoordinate coordinate(int rank) const {
    MeshCoordinate at;
    for (const Axis axis : kAxes) {
      at[axis] = rank % sizes_[axis];
      rank /= sizes_[axis];
    }
    return at;
  }
  int rank(const MeshCoordinate& at) const {
    int rank = 0, step = 1;
    for (const Axis axis : kAxes) {
      rank += step * at[axis];
      step *= sizes_[axis];
    }
    return rank;
  }

 private:
  PerAxis<int> sizes_;
};

}  // namespace ladder
