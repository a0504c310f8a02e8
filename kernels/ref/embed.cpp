// Token and position embeddings: forward looks rows up, backward sums gradients by row.
#include <algorithm>

#include "kernels/documents.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"

namespace ladder::ref {
namespace {

template <class Real>
void forward(const Extents& s, const Positions& positions, Real* out, const int32_t* tokens,
             const Real* wte, const Real* wpe) {
  for (int64_t row = 0; row < s.B * s.T; ++row) {
    if (tokens[row] == kElsewhere) {
      std::fill_n(out + row * s.C, s.C, Real(kNothing));
      continue;
    }
    for (int64_t c = 0; c < s.C; ++c) {
      const Real word = wte[tokens[row] * s.C + c];
      out[row * s.C + c] = wpe ? word + wpe[positions[row] * s.C + c] : word;
    }
  }
}

template <class Real>
void backward_tokens(const Extents& s, int chunks, const Sequences& sequences, Real* dwte,
                     const Real* dout, const int32_t* tokens, Into into) {
  for (int64_t v = 0; v < s.V; ++v) {
    // Most rows of a large vocabulary are not met, and cost only this search.
    const bool met = std::find(tokens, tokens + s.B * s.T, v) != tokens + s.B * s.T;
    for (int64_t c = 0; c < s.C; ++c) {
      const Real sum = tree_sum<Real>(met ? sequences.count : 0, [&](int64_t b) {
        const auto [first, end] = sequences[b];
        return matrix_sum<Real>(chunks, end - first, [&](int64_t t) {
          return tokens[first + t] == v ? dout[(first + t) * s.C + c] : Real(kNothing);
        });
      });
      store(dwte[v * s.C + c], sum, into);
    }
  }
}

template <class Real>
void backward_positions(const Extents& s, const Sequences& sequences, Real* dwpe, const Real* dout,
                        Into into) {
  for (int64_t t = 0; t < s.P; ++t)
    for (int64_t c = 0; c < s.C; ++c) {
      const Real sum = tree_sum<Real>(t < s.T ? sequences.count : 0, [&](int64_t b) {
        const Range rows = sequences[b];
        return t < rows.size() ? dout[(rows.begin + t) * s.C + c] : Real(kNothing);
      });
      store(dwpe[t * s.C + c], sum, into);
    }
}

}  // namespace

void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, Tensor wte, Tensor wpe) {
  const Extents s = check_shapes(Op::embed_forward, out, tokens, wte, wpe);
  check_tokens(tokens, s.V);
  dispatch(out, [&]<class Real>(Real) {
    forward(s, positions_of(ctx, s.B, s.T), out.data<Real>(), tokens.data<int32_t>(),
            wte.data<Real>(), wpe.data<Real>());
  });
}

void embed_backward(const Ctx& ctx, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens,
                    Into into) {
  const Extents s = check_shapes(Op::embed_backward, dwte, dwpe, dout, tokens);
  const Sequences sequences = sequences_of(ctx, s.B, s.T);
  check_tokens(tokens, s.V);
  dispatch(dout, [&]<class Real>(Real) {
    backward_tokens(s, ctx.token_chunks, sequences, dwte.data<Real>(), dout.data<Real>(),
                    tokens.data<int32_t>(), into);
    backward_positions(s, sequences, dwpe.data<Real>(), dout.data<Real>(), into);
  });
}

}  // namespace ladder::ref
