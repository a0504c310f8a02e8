// Adafactor: keeps the means of rows and columns of a matrix's second moment (arXiv 1804.04235).
//
//   q = g^2 + 1e-30
//   row = beta2 row + (1 - beta2) mean of q over columns        (R numbers)
//   col = beta2 col + (1 - beta2) mean of q over rows           (N numbers)
//   v = row col^T / mean(row)                                   (R N numbers, never stored)
//   u = g / sqrt(v);  u = u / max(1, rms(u));  w = w - lr (u + weight_decay w)
//
// with beta2 = 1 - t^-0.8, so that no bias correction is needed. There is no first moment. A vector
// keeps its whole second moment. The means of a matrix are sums over all of it, so Adafactor cannot
// be sharded by elements.
#pragma once

#include <cstdint>
#include <vector>

#include "chapters/02_adamw/adamw.h"
#include "kernels/math.h"

namespace ladder {

class Adafactor {
 public:
  Adafactor(Arena& arena, const ParamLayout& layout, const AdamWOptions& options)
      : layout_(&layout), options_(options) {
    for (const ParamSpec& spec : layout.specs()) {
      Factors f;
      f.row = arena.zeros(Mem::Optim, spec.name + ".row", Dtype::F32, {spec.shape.dims[0]});
      if (spec.is_matrix())
        f.col = arena.zeros(Mem::Optim, spec.name + ".col", Dtype::F32, {spec.shape.dims[1]});
      factors_.push_back(f);
    }
  }

  /// Bytes of Optim: 4 (R + N) for a matrix (R,N), 4 N for a vector (N).
  static int64_t bytes(const ParamLayout& layout) {
    int64_t count = 0;
    for (const ParamSpec& spec : layout.specs())
      count += spec.shape.dims[0] + (spec.is_matrix() ? spec.shape.dims[1] : 0);
    return 4 * count;
  }

  /// Update t (from 1) of all parameters. params, grads F32.
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr, int64_t t) {
    const auto beta2 = static_cast<float>(1 - math::pow(static_cast<double>(t), -0.8));
    for (size_t i = 0; i < factors_.size(); ++i) {
      const ParamSpec& spec = layout_->specs()[i];
      // Padded vocabulary rows have no gradient. They are left out, because they would dilute the
      // means.
      const auto part = [&](const Flat& flat) {
        return layout_->tensor(flat, spec).first(spec.rows);
      };
      ctx.kernels->adafactor_update(ctx, part(params), factors_[i].row.first(spec.rows),
                                    factors_[i].col, part(grads),
                                    {.lr = lr,
                                     .beta2 = beta2,
                                     .eps = 1e-30f,
                                     .clip = 1.0f,
                                     .weight_decay = options_.decay_of(spec)});
    }
  }

  std::vector<NamedTensor> tensors() const {
    std::vector<NamedTensor> all;
    for (size_t i = 0; i < factors_.size(); ++i) {
      const std::string& name = layout_->specs()[i].name;
      all.push_back({name + ".row", factors_[i].row});
      if (factors_[i].col) all.push_back({name + ".col", factors_[i].col});
    }
    return all;
  }

 private:
  struct Factors {
    Tensor row, col;
  };
  const ParamLayout* layout_;
  AdamWOptions options_;
  std::vector<Factors> factors_;
};

}  // namespace ladder
