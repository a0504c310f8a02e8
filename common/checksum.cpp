#include "common/checksum.h"

#include <new>
#include <xxhash.h>

#include <fmt/format.h>

namespace ladder {

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Checksum::Checksum() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(state_.get()));
}

uint64_t hash64(std::string_view bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 hash128(std::string_view bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

}  // namespace ladder
