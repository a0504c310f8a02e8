// Lab 11x: a linear layer under sequence parallelism whose transfers travel beside its products.
// The answer is nowhere in the tree.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "common/comm/chunks.h"
#include "common/comm/elements.h"
#include "common/model/parts.h"
#include "common/run/comm_stream.h"
#include "kernels/arena.h"

namespace ladder {

/// A linear layer without bias. Each of t ranks has some of its columns: w (F/t,C). Of its input a
/// rank has its own positions of every sequence: inp (n,T/t,C). One object serves all layers of
/// this size, so what it holds is there until the next call.
class ColumnLinear {
 public:
  /// @param stream where transfers travel: jobs run beside the products, in the order in which they
  ///               are given
  /// @param micro  sequences of a micro-batch, at most
  ColumnLinear(Arena& arena, CommStream& stream, int64_t micro, int64_t T, int64_t C)
      : stream_(stream),
        gathered_(arena.alloc(Mem::Workspace, "gathered", Dtype::F32, {micro, T, C})),
        summand_(arena.alloc(Mem::Workspace, "summand", Dtype::F32, {micro, T, C})) {}

  /// out (n,T,F/t) = all positions of inp (n,T/t,C), times w^T. While the product of one sequence
  /// is computed, the next is gathered.
  void forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w) {
    throw std::logic_error("forward is not written yet");
  }

  /// dinp (n,T/t,C) = own positions of the sum over ranks of dout w; dw (F/t,C) = dout^T times all
  /// positions of inp, or is added to. dout (n,T,F/t); inp is that of forward, which has not kept
  /// other ranks' positions. inp is gathered beside the first product; dinp is summed beside the
  /// second. When backward returns, both gradients are there.
  void backward(const Ctx& ctx, Tensor dinp, Tensor dw, Tensor dout, Tensor inp, Tensor w,
                Into into) {
    throw std::logic_error("backward is not written yet");
  }

 private:
  CommStream& stream_;
  Tensor gathered_;  ///< (micro,T,C): all positions of what the layer reads
  Tensor summand_;   ///< (micro,T,C): this rank's summand of the gradient of that
  // yours: members and functions that you add
  // end of yours
};

}  // namespace ladder
