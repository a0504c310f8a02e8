#include "common/run/validation.h"

#include <algorithm>

#include "common/comm/comm.h"
#include "common/model/measure.h"
#include "common/run/ending.h"
#include "kernels/transfer.h"

namespace ladder {

Validation::Validation(const Ctx& ctx, Comm* comm, const Text& text, const Batch& buffer,
                       Tensor losses, int64_t each)
    : ctx_(ctx),
      comm_(comm),
      text_(text),
      buffer_(buffer),
      each_(each),
      ranks_(comm ? comm->size() : 1),
      rank_(comm ? comm->rank() : 0),
      losses_(losses.first(ranks_ * each)) {}

bool Validation::next() {
  if (stopping()) return false;
  if (begin_ >= 0) end_round();
  begin_ = begin_ < 0 ? 0 : begin_ + ranks_ * each_;
  const int64_t all = text_.validation_count();
  if (begin_ >= all) return false;
  const int64_t first = begin_ + rank_ * each_;
  counting_ = std::clamp<int64_t>(all - first, 0, each_);
  count_ = std::max<int64_t>(1, counting_);
  text_.draw_validation(batch(), counting_ > 0 ? first : 0);
  return true;
}

void Validation::end_round() {
  zero(ctx_, own().slice(counting_, each_ - counting_));
  if (comm_) comm_->all_gather(losses_, own());
  sum_ += total_loss(ctx_, losses_);
}

float Validation::mean() const {
  const int64_t targets = text_.validation_count() * buffer_.targets.dim(1);
  return static_cast<float>(sum_ / static_cast<double>(targets));
}

}  // namespace ladder
