#include "common/data/text.h"

#include <algorithm>
#include <numbers>
#include <span>
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

std::shared_ptr<const InputFile> TextOptions::open() const {
  return file ? file : std::make_shared<const InputFile>(path, flag);
}

TargetCount TextOptions::count(int64_t targets,
                               const std::function<std::vector<int32_t>()>& read) const {
  TargetCount all{.targets = targets, .bytes = format.bytes() ? targets : 0};
  if (!token_bytes) return all;
  const std::vector<int32_t> tokens = read();
  all.bytes = 0;
  for (const int32_t token : std::span(tokens).subspan(1))
    all.bytes += token_bytes->at(static_cast<size_t>(token));
  return all;
}

Text::Text(const TextOptions& options)
    : options_(options),
      file_(options.open()),
      size_(options.format.count(file_->size())),
      train_size_(size_ - size_ / kHeldOutShare) {
  const int64_t least = options.seq_len + 1;
  if (held_out_size() < least)
    throw UserError("{}: {} {} are too short for --seq-len {}; it takes at least {}", file_->name(),
                    size_, options.format.bytes() ? "bytes" : "tokens", options.seq_len,
                    least * kHeldOutShare);
}

/// The T + 1 tokens from token `at` of the file on.
std::vector<int32_t> Text::read_row(int64_t at) const {
  std::vector<int32_t> tokens(static_cast<size_t>(options_.seq_len + 1));
  read_tokens(*file_, options_.format, options_.vocab, at, std::span(tokens));
  return tokens;
}

/// Row i of the batch: T tokens, from token `at` of the file on, and as targets the T tokens one
/// later.
void Text::fill_row(const Batch& batch, int64_t i, int64_t at) const {
  const int64_t T = options_.seq_len;
  const std::vector<int32_t> tokens = read_row(at);
  std::copy_n(tokens.begin(), T, batch.tokens.data<int32_t>() + i * T);
  std::copy_n(tokens.begin() + 1, T, batch.targets.data<int32_t>() + i * T);
}

int64_t Text::step_start(uint64_t seed, int64_t step, int64_t sequence) const {
  const auto starts = static_cast<uint64_t>(train_size_ - options_.seq_len);
  return static_cast<int64_t>(
      Random(seed, "batch")
          .below(starts, static_cast<uint64_t>(sequence), static_cast<uint64_t>(step)));
}

void Text::draw(const Batch& batch, uint64_t seed, int64_t step, int64_t first) const {
  for (int64_t i = 0; i < batch.tokens.dim(0); ++i)
    fill_row(batch, i, step_start(seed, step, first + i));
}

int64_t Text::validation_count() const {
  const int64_t fit = (held_out_size() - 1) / options_.seq_len;
  return std::min(fit, std::max<int64_t>(1, kValidationTokens / options_.seq_len));
}

int64_t Text::validation_start(int64_t sequence) const {
  const int64_t room = held_out_size() - 1 - options_.seq_len;
  return train_size_ + sequence * room / std::max<int64_t>(1, validation_count() - 1);
}

void Text::draw_validation(const Batch& batch, int64_t first) const {
  for (int64_t i = 0; i < batch.tokens.dim(0); ++i) fill_row(batch, i, validation_start(first + i));
}

template <class Start>
TargetCount Text::count_rows(int64_t count, Start&& start) const {
  TargetCount all;
  for (int64_t i = 0; i < count; ++i)
    all += options_.count(options_.seq_len, [&] { return read_row(start(i)); });
  return all;
}

TargetCount Text::step_targets(uint64_t seed, int64_t step, int64_t count) const {
  return count_rows(count, [&](int64_t i) { return step_start(seed, step, i); });
}

TargetCount Text::validation_targets() const {
  return count_rows(validation_count(), [&](int64_t i) { return validation_start(i); });
}

double bits_per_byte(double loss, const TargetCount& over) {
  if (over.bytes == 0) return 0;
  return loss / std::numbers::ln2 * static_cast<double>(over.targets) /
         static_cast<double>(over.bytes);
}

}  // namespace ladder
