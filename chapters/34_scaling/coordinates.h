// The coordinate check: how large activations are, step by step. Where the rules of scaling.h are
// right, no width and no depth changes that; where one is forgotten, a line usually rises or falls.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/model/activations.h"
#include "common/run/log.h"
#include "kernels/transfer.h"

namespace ladder {

/// The mean of |x| over all elements of x.
inline double mean_size(const Ctx& ctx, Tensor x) {
  const HostCopy host = HostCopy::of(ctx, x);
  const auto* element = host.tensor().data<float>();
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += std::abs(element[i]);
  return sum / static_cast<double>(x.size());
}

/// Adds one entry to "coordinates" of --report: what forward has left in `acts` after step `step`.
inline void report_coordinates(Log& log, const Ctx& ctx, const Activations& acts, int64_t step) {
  nlohmann::json streams = nlohmann::json::array();
  for (int64_t l = 0; l <= std::ssize(acts.blocks); ++l)
    streams.push_back(mean_size(ctx, acts.stream(l)));
  log.extra()["coordinates"].push_back(
      {{"step", step}, {"stream", streams}, {"logits", mean_size(ctx, acts.logits)}});
}

}  // namespace ladder
