#include "common/data/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/error.h"
#include "common/random.h"
#include "kernels/host_memory.h"
#include "kernels/kernels.h"

namespace ladder {
namespace {

constexpr size_t kHeldOutShare = 10;  // one part in ten
constexpr int64_t kValidationTokens = 65536;

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0)
    throw UserError("--data {}: {}; give a text file", path,
                    errno ? std::strerror(errno) : "cannot be read");
  if (const int64_t left = host_memory_left(); size > left)
    throw UserError("--data {}: {} bytes, but the machine has {} bytes of memory left", path,
                    static_cast<int64_t>(size), left);
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  file.seekg(0);
  // iostreams know only char.
  if (!file.read(reinterpret_cast<char*>(bytes.data()), size) && size > 0)
    throw UserError("--data {}: cannot be read; give a text file", path);
  return bytes;
}

/// Row i of the batch: T tokens from `start`, and the T that follow one later.
void fill_row(const Batch& batch, int64_t i, const uint8_t* start) {
  const int64_t T = batch.tokens.dim(1);
  std::copy_n(start, T, batch.tokens.data<int32_t>() + i * T);
  std::copy_n(start + 1, T, batch.targets.data<int32_t>() + i * T);
}

}  // namespace

Batch alloc_batch(Arena& arena, int64_t B, int64_t T) {
  return {.tokens = arena.shared(Mem::Activation, "tokens", Dtype::I32, {B, T}),
          .targets = arena.shared(Mem::Activation, "targets", Dtype::I32, {B, T})};
}

int64_t count_targets(const Batch& batch) {
  const int32_t* targets = batch.targets.data<int32_t>();
  return batch.targets.size() - std::count(targets, targets + batch.targets.size(), kIgnore);
}

Text::Text(const std::string& path, int64_t seq_len)
    : seq_len_(seq_len), bytes_(read_file(path)), train_size_(0) {
  const size_t held_out = bytes_.size() / kHeldOutShare;
  const size_t least = static_cast<size_t>(seq_len) + 1;
  if (held_out < least)
    throw UserError("--data {}: {} bytes are too short for --seq-len {}; it takes at least {}",
                    path, bytes_.size(), seq_len, least * kHeldOutShare);
  train_size_ = bytes_.size() - held_out;
}

void Text::draw(const Batch& batch, uint64_t seed, int64_t step, int64_t first) const {
  const Random random(seed, "batch");
  const uint64_t starts = train_size_ - static_cast<uint64_t>(seq_len_);
  for (int64_t i = 0; i < batch.tokens.dim(0); ++i) {
    const uint64_t at =
        random.below(starts, static_cast<uint64_t>(first + i), static_cast<uint64_t>(step));
    fill_row(batch, i, bytes_.data() + at);
  }
}

int64_t Text::validation_count() const {
  const auto fit = (static_cast<int64_t>(held_out().size()) - 1) / seq_len_;
  return std::min(fit, std::max<int64_t>(1, kValidationTokens / seq_len_));
}

void Text::draw_validation(const Batch& batch, int64_t first) const {
  const int64_t room = static_cast<int64_t>(held_out().size()) - 1 - seq_len_;
  const int64_t gaps = std::max<int64_t>(1, validation_count() - 1);
  for (int64_t i = 0; i < batch.tokens.dim(0); ++i)
    fill_row(batch, i, held_out().data() + (first + i) * room / gaps);
}

}  // namespace ladder
