// Who orthogonalizes which matrix, and what travels for that.
//
// A shard of chapter 08 begins and ends inside a matrix, and Newton-Schulz wants the whole one. So
// each matrix has an owner. All ranks send it their slices, and it sends back slices of the update:
//
//   rank 0   | a a a b |          owner of a     a a a a a          rank 0   | a a a b |
//   rank 1   | a a b b |   -->    owner of b     b b b       -->    rank 1   | a a b b |
//
// The momentum and the weights stay where chapter 08 has them, so its checkpoints do, too. An
// update that took only what a rank has would orthogonalize a part of a matrix, which is another
// matrix.
//
// Bytes, on N ranks: the slices of P_m elements of matrices are 4 P_m / N on each rank. It sends
// what it does not own itself, and as an owner the slices of others: about 2 (N - 1) / N times
// 4 P_m / N. A slice is padded to kAlign elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "chapters/32_optimizers/newton_schulz.h"
#include "common/comm/all_to_all_rows.h"
#include "common/model/layout.h"
#include "kernels/check.h"

namespace ladder {

/// What is orthogonalized by itself: Q, K and V of a fused matrix, a gate or an up matrix, or a
/// matrix that is not fused. Seen as (groups, numbers of a group), a fused matrix holds it as
/// `count` neighbors of each group.
struct MuonPiece {
  int64_t column, count;  ///< in a group
  int64_t rows, N;        ///< as a matrix of N columns, group after group
};

/// A matrix that Muon updates.
struct MuonMatrix {
  std::string name;  ///< of its ParamSpec
  int64_t size, groups;
  std::vector<MuonPiece> pieces;
  int owner = 0;

  int64_t flops() const {
    int64_t sum = 0;
    for (const MuonPiece& piece : pieces) sum += NewtonSchulz::flops(piece.rows, piece.N);
    return sum;
  }
};

/// Matrices of blocks. Embeddings, positions and the head, tied or not, are looked up or scored row
/// by row: AdamW updates them, and all vectors.
inline bool is_muon(const ParamSpec& spec) {
  return spec.role == Role::Matrix || spec.role == Role::Projection || spec.role == Role::Qkv ||
         spec.role == Role::GateUp;
}

inline MuonMatrix muon_matrix(const GptConfig& gpt, const ParamSpec& spec) {
  const int64_t R = spec.shape.dims[0], N = spec.shape.dims[1];
  MuonMatrix matrix{.name = spec.name, .size = R * N, .groups = 1, .pieces = {{0, R * N, R, N}}};
  const auto cut = [&](int64_t groups, std::initializer_list<int64_t> rows) {
    matrix.groups = groups;
    matrix.pieces.clear();
    int64_t column = 0;
    for (const int64_t n : rows) {
      matrix.pieces.push_back({column, n * N, groups * n, N});
      column += n * N;
    }
  };
  const int64_t HS = gpt.head_size(), G = gpt.groups();
  if (spec.role == Role::Qkv) cut(G, {gpt.heads / G * HS, HS, HS});
  if (spec.role == Role::GateUp) cut(R / 2, {1, 1});
  return matrix;
}

/// All matrices of a whole layout, each with its owner. The matrix with the most operations goes
/// first, to the rank with the fewest so far; ties go to the earlier matrix, and to the lower rank.
inline std::vector<MuonMatrix> owned_matrices(const ParamLayout& layout) {
  std::vector<MuonMatrix> all;
  for (const ParamSpec& spec : layout.specs())
    if (is_muon(spec)) all.push_back(muon_matrix(layout.config(), spec));
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return all[i].flops(); });
  std::vector<int64_t> load(static_cast<size_t>(layout.shards()));
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(load);
    all[i].owner = static_cast<int>(least - load.begin());
    *least += all[i].flops();
  }
  return all;
}

/// A slice of a matrix in a buffer of rows of kAlign elements.
struct MuonSlice {
  size_t matrix;  ///< its place among owned_matrices()
  Range part;     ///< which elements of the matrix
  int64_t row;    ///< where it begins in the buffer

  int64_t rows() const { return round_up(part.size(), kAlign) / kAlign; }
  Tensor in(const Tensor& buffer) const {
    return flat(buffer.slice(row, rows())).first(part.size());
  }
};

/// What one rank sends to owners, and what arrives as it is an owner. The update takes the same way
/// back.
struct MuonPlan {
  std::vector<MuonMatrix> matrices;
  std::vector<MuonSlice> leaving, arriving;            ///< by the other rank, then by matrix
  std::vector<int32_t> leaving_begin, arriving_begin;  ///< rows, as all_to_all_rows wants them
  int64_t elements = 0;  ///< of the largest matrix that this rank owns
  int64_t side = 0;      ///< the largest min(R, N) of its pieces

  /// @param shard what this rank has
  explicit MuonPlan(const ParamLayout& shard) {
    const ParamLayout whole = shard.unsharded();
    matrices = owned_matrices(whole);
    for (int64_t r = 0; r < whole.shards(); ++r) {
      add(leaving, leaving_begin, shard, r);
      add(arriving, arriving_begin, whole.shard(r), shard.rank());
    }
    leaving_begin.push_back(static_cast<int32_t>(rows(leaving)));
    arriving_begin.push_back(static_cast<int32_t>(rows(arriving)));
    for (const MuonMatrix& matrix : matrices) {
      if (matrix.owner != shard.rank()) continue;
      elements = std::max(elements, matrix.size);
      for (const MuonPiece& piece : matrix.pieces)
        side = std::max(side, std::min(piece.rows, piece.N));
    }
  }

  static int64_t rows(const std::vector<MuonSlice>& slices) {
    return slices.empty() ? 0 : slices.back().row + slices.back().rows();
  }

  /// Bytes that this rank sends in an update: slices of others' matrices, then slices of its own.
  int64_t sent(int64_t rank) const {
    const auto r = static_cast<size_t>(rank);
    const auto others = [&](const std::vector<int32_t>& begin) {
      return begin.back() - (begin[r + 1] - begin[r]);
    };
    return 4 * kAlign * (others(leaving_begin) + others(arriving_begin));
  }

  /// Operations of rank `rank`, as an owner.
  int64_t flops(int64_t rank) const {
    int64_t sum = 0;
    for (const MuonMatrix& matrix : matrices)
      if (matrix.owner == rank) sum += matrix.flops();
    return sum;
  }

 private:
  /// Adds the slices of shard `from` that belong to matrices of `owner`.
  void add(std::vector<MuonSlice>& slices, std::vector<int32_t>& begin, const ParamLayout& from,
           int64_t owner) const {
    begin.push_back(static_cast<int32_t>(rows(slices)));
    for (size_t i = 0; i < matrices.size(); ++i) {
      const ParamSpec* spec = from.find(matrices[i].name);
      if (spec && matrices[i].owner == owner) slices.push_back({i, spec->part, rows(slices)});
    }
  }
};

}  // namespace ladder
