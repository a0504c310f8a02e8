// What a step reports of itself, and the line of --trace made of it.
#pragma once

#include <cstdint>
#include <string>

namespace ladder {

/// What a step says of itself.
struct StepRecord {
  int64_t step;      ///< from 0
  float loss;        ///< mean over the batch's targets, before the update
  double grad_norm;  ///< before clipping
  float lr;
  int64_t tokens;  ///< seen in this step
};

/// A loss as a screen shows it. The sign of a NaN says nothing.
std::string loss_text(double loss);

/// One line of JSON with its newline. "loss", "grad_norm" and "lr" are hexadecimal floats, so that
/// equal text means equal bits; "decimal" has the same numbers for people and for tools that plot,
/// null where one is not finite. param_hash is of the weights after the update
/// (common/model/init.h).
std::string trace_line(const StepRecord& record, uint64_t param_hash);

}  // namespace ladder
