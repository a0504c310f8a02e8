#include "common/checksum.h"

#include <array>
#include <cstring>
#include <new>
#include <xxhash.h>

#include <fmt/format.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

namespace ladder {
namespace {

// Bit 31 of a word is the coefficient of x^0, bit 0 that of x^31: CRC-32C takes bits lowest first.
constexpr uint32_t kPolynomial = 0x82f63b78, kOne = 1u << 31;

constexpr uint32_t times_x(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

/// The remainder of a(x) b(x).
constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b)) sum ^= (a & bit) != 0 ? b : 0;
  return sum;
}

/// a(x) x^(8 bytes), as if so many zeros followed.
uint32_t shifted(uint32_t a, int64_t bytes) {
  static constexpr std::array kPowers = [] {
    std::array<uint32_t, 63> powers{};  // x^(8 2^i)
    powers[0] = kOne >> 8;
    for (size_t i = 1; i < powers.size(); ++i) powers[i] = product(powers[i - 1], powers[i - 1]);
    return powers;
  }();
  for (size_t i = 0; bytes >> i != 0; ++i)
    if ((bytes >> i & 1) != 0) a = product(kPowers[i], a);
  return a;
}

/// Entry [i][b]: what byte b adds where i bytes follow.
constexpr std::array kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t a = b;
    for (auto& table : tables) {
      for (int bit = 0; bit < 8; ++bit) a = times_x(a);
      table[b] = a;
    }
  }
  return tables;
}();

/// The remainder after 8 more bytes.
#ifdef __SSE4_2__
uint32_t and_word(uint32_t a, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(a, word));
}
#else
uint32_t and_word(uint32_t a, uint64_t word) {
  word ^= a;
  a = 0;
  for (size_t i = 0; i < 8; ++i) a ^= kTables[7 - i][word >> 8 * i & 0xff];
  return a;
}
#endif

uint32_t remainder(std::span<const std::byte> run) {
  uint32_t a = 0;
  for (; run.size() >= sizeof(uint64_t); run = run.subspan(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, run.data(), sizeof word);
    a = and_word(a, word);
  }
  for (const std::byte b : run) a = (a >> 8) ^ kTables[0][(a ^ static_cast<uint32_t>(b)) & 0xff];
  return a;
}

}  // namespace

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

uint32_t crc32c_of_range(std::span<const std::byte> run, int64_t behind) {
  return shifted(remainder(run), behind);
}

uint32_t crc32c_of_file(uint32_t runs, int64_t bytes) { return ~(runs ^ shifted(~0u, bytes)); }

uint64_t hash64(std::string_view bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 hash128(std::string_view bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

}  // namespace ladder
