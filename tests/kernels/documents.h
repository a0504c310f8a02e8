// Calls on rows that hold documents: the same documents, either several in a row or one in each
// row.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/documents.h"
#include "kernels/tree.h"
#include "tests/kernels/calls.h"

namespace ladder::test {

/// Where documents lie: B rows of the batch, and the tokens of each document, turn by turn.
struct Placement {
  int64_t B;
  std::vector<Range> documents;
};

/// Whether the call writes losses.
inline bool has_losses(const Call& call) { return call.out[0].shape.rank == 1 && !call.sums(); }
/// The calls that take documents.
inline std::vector<Call> calls_of_documents(Sandbox& box, const CallSizes& sizes, Dtype dtype) {
  std::vector<Call> all = calls(box, sizes, dtype);
  std::erase_if(all,
                [](const Call& call) { return call.name == std::string_view("attention_cached"); });
  return all;
}
/// Whether the borders of documents change what the call writes.
inline bool feels_documents(const Call& call) {
  const std::string_view name = call.name;
  return call.sums() || name == "embed_forward" || name.starts_with("rope") ||
         name.starts_with("attention") || has_losses(call);
}

/// Three bundles of up to four documents, in eight turns.
class LaidDocuments {
 public:
  static constexpr int64_t T = 200, kTurns = 8, kBundles = 3, D = kBundles * kTurns;
  /// Documents of one token, of one leaf and of several leaves. Some turns have no document (0),
  /// also turns between others. No bundle uses the last four turns.
  static constexpr std::array<int64_t, D> kLengths{1, 130, 20, 0, 0,  0, 0,   0, 150, 50, 0, 0,
                                                   0, 0,   0,  0, 60, 0, 100, 0, 0,   0,  0, 0};

  explicit LaidDocuments(Sandbox& box) : box_(&box) {}

  static Placement packed() {
    Placement all{.B = kBundles, .documents{}};
    for (int64_t d = 0, row = 0; d < D; row += kLengths[size_t(d++)]) {
      if (d % kTurns == 0) row = d / kTurns * T;
      all.documents.push_back({row, row + kLengths[size_t(d)]});
    }
    return all;
  }
  static Placement unpacked() {
    Placement all{.B = D, .documents{}};
    for (int64_t d = 0; d < D; ++d) all.documents.push_back({d * T, d * T + kLengths[size_t(d)]});
    return all;
  }

  DocumentBorders borders(const Placement& all) {
    const Tensor borders = box_->empty(Dtype::I32, {std::ssize(all.documents), 2});
    for (int64_t d = 0; d < borders.dim(0); ++d) {
      borders.data<int32_t>()[2 * d] = static_cast<int32_t>(all.documents[size_t(d)].begin);
      borders.data<int32_t>()[2 * d + 1] = static_cast<int32_t>(all.documents[size_t(d)].end);
    }
    const Tensor position = box_->empty(Dtype::I32, {all.B, T});
    const int64_t longest = fill_positions(position, borders);
    return {.borders = borders,
            .position = position,
            .longest = longest,
            .turns = kTurns,
            .used = turns_in_use(borders, kTurns)};
  }

  /// A tensor like x, but for B sequences of `tokens` tokens instead of D sequences of T tokens. If
  /// x has one number a sequence, the tensor has `losses` numbers.
  Tensor sized(const Tensor& x, int64_t B, int64_t tokens, int64_t losses) {
    if (x.shape.rank == 1) return box_->empty(x.dtype, {losses});
    Shape shape = x.shape;
    shape.dims[0] = B;
    for (int i = 1; i < shape.rank; ++i)
      if (shape.dims[size_t(i)] == T) shape.dims[size_t(i)] = tokens;
    return box_->empty(x.dtype, shape);
  }
  /// The bytes of tokens `rows` in a tensor of `all` tokens.
  static std::span<char> bytes(const Tensor& x, Range rows, int64_t all) {
    const auto row = static_cast<size_t>(x.bytes() / all);
    return {static_cast<char*>(x.ptr) + size_t(rows.begin) * row, size_t(rows.size()) * row};
  }

  /// `source` has one document in each row. The result has the same documents where `all` places
  /// them; the numbers of padding are `padding`.
  Call laid(const Call& source, const Placement& all, double padding) {
    Call call = source;
    const int32_t of_padding = has_losses(call) ? kIgnore : 0;
    for (Operand& o : call.in) {
      if (!o.x || !is_of_sequences(o.kind)) continue;
      const Tensor from = std::exchange(o.x, sized(o.x, all.B, T, D));
      if (o.kind == Kind::Index)
        std::fill_n(o.x.data<int32_t>(), o.x.size(), of_padding);
      else
        for (int64_t i = 0; i < o.x.size(); ++i) set(o.x, i, padding);
      for (int64_t d = 0; d < D; ++d) {
        const int64_t L = kLengths[size_t(d)], row = all.documents[size_t(d)].begin;
        std::ranges::copy(bytes(from, {d * T, d * T + L}, D * T),
                          bytes(o.x, {row, row + L}, all.B * T).begin());
      }
    }
    return call;
  }
  std::vector<Tensor> outputs(const Call& source, const Placement& all, Dtype dtype) {
    std::vector<Tensor> out;
    for (const Tensor& x : source.outputs(*box_, dtype))
      out.push_back(source.sums() ? x : sized(x, all.B, T, D));
    return out;
  }

 private:
  Sandbox* box_;
};

}  // namespace ladder::test
