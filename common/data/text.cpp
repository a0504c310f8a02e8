#include "common/data/text.h"

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "common/random.h"
#include "kernels/kernels.h"

namespace ladder {
namespace {

constexpr int64_t kHeldOutShare = 10;  // one part in ten
constexpr int64_t kValidationTokens = 65536;

}  // namespace

Batch alloc_batch(Arena& arena, int64_t B, int64_t T) {
  return {.tokens = arena.shared(Mem::Activation, "tokens", Dtype::I32, {B, T}),
          .targets = arena.shared(Mem::Activation, "targets", Dtype::I32, {B, T})};
}

int64_t count_targets(const Batch& batch) {
  const int32_t* targets = batch.targets.data<int32_t>();
  return batch.targets.size() - std::count(targets, targets + batch.targets.size(), kIgnore);
}

Text::Text(const TextOptions& options)
    : options_(options),
      file_(options.path, options.flag),
      size_(options.format.count(file_.size())),
      train_size_(size_ - size_ / kHeldOutShare) {
  const int64_t least = options.seq_len + 1;
  if (held_out_size() < least)
    throw UserError("{}: {} {} are too short for --seq-len {}; it takes at least {}", file_.name(),
                    size_, options.format.bytes() ? "bytes" : "tokens", options.seq_len,
                    least * kHeldOutShare);
}

/// Row i of the batch: T tokens, from token `at` of the file on, and as targets the T tokens one
/// later.
void Text::fill_row(const Batch& batch, int64_t i, int64_t at) const {
  const auto& [width, header] = options_.format;
  const int64_t T = options_.seq_len;
  std::vector<std::byte> raw(static_cast<size_t>((T + 1) * width));
  file_.read(header + at * width, raw);
  int32_t* const tokens = batch.tokens.data<int32_t>() + i * T;
  int32_t* const targets = batch.targets.data<int32_t>() + i * T;
  for (int64_t t = 0; t <= T; ++t) {
    const int64_t token = token_at(raw.data() + t * width, width);
    require_token(file_, at + t, token, options_.vocab);
    if (t < T) tokens[t] = static_cast<int32_t>(token);
    if (t > 0) targets[t - 1] = static_cast<int32_t>(token);
  }
}

void Text::draw(const Batch& batch, uint64_t seed, int64_t step, int64_t first) const {
  const Random random(seed, "batch");
  const auto starts = static_cast<uint64_t>(train_size_ - options_.seq_len);
  for (int64_t i = 0; i < batch.tokens.dim(0); ++i)
    fill_row(batch, i,
             static_cast<int64_t>(random.below(starts, static_cast<uint64_t>(first + i),
                                               static_cast<uint64_t>(step))));
}

int64_t Text::validation_count() const {
  const int64_t fit = (held_out_size() - 1) / options_.seq_len;
  return std::min(fit, std::max<int64_t>(1, kValidationTokens / options_.seq_len));
}

void Text::draw_validation(const Batch& batch, int64_t first) const {
  const int64_t room = held_out_size() - 1 - options_.seq_len;
  const int64_t gaps = std::max<int64_t>(1, validation_count() - 1);
  for (int64_t i = 0; i < batch.tokens.dim(0); ++i)
    fill_row(batch, i, train_size_ + (first + i) * room / gaps);
}

}  // namespace ladder
