// Which bytes of the weights a rank writes. GPT-2's files have matrices transposed, so what a rank
// has of a matrix lies scattered there. The ranks that share a matrix exchange numbers: afterwards
// each has as many as before, and they are neighbors in the file, one run of bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/save/training_state.h"
#include "kernels/context.h"

namespace ladder {

/// Of the weights of one rank: what it writes, and how it gets that.
class FileOrder {
 public:
  explicit FileOrder(const TrainingState& state);

  /// Some layouts have several copies of the model: R replicas of as many ranks as the layout
  /// knows. Whether this rank's replica writes what begins at `begin` of `all`.
  bool writes(int64_t begin, int64_t all) const { return begin * R_ / all == replica_; }
  /// Whether this rank writes some of a parameter.
  bool writes(const ParamSpec& spec) const {
    return !spec.is_copy && writes(whole_.spec(spec.name).offset, whole_.size());
  }
  /// What this rank writes of n elements that are no flat tensor.
  Range part(int64_t n) const;
  /// Which elements of its tensor in the file this rank writes of a transposed parameter: as many
  /// as it has.
  Range range(const ParamSpec& spec) const;

  /// weights = state.params as the files have them. Each parameter that this rank writes lies at
  /// its place in the flat buffer; of a transposed one that place holds range(). All ranks call it.
  /// @param weights in host memory
  void stage(const Ctx& ctx, Tensor weights) const;

  const ParamLayout& whole() const { return whole_; }

 private:
  /// What a rank has of a transposed parameter, and writes of it.
  struct Owner {
    int64_t rank;
    ParamSpec spec;
    Range range;
  };
  /// out = range(spec). All owners of the parameter call it.
  void exchange(const ParamSpec& spec, const float* part, float* out) const;

  const TrainingState& state_;
  ParamLayout whole_;
  int64_t rank_, each_, R_, replica_;
  std::map<std::string, std::vector<Owner>> owners_;
};

}  // namespace ladder
