// PairMap: finds a value by a pair of tokens. It is a hash table with linear probing.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace ladder {

/// (left, right) as one number, in the order of pairs.
constexpr uint64_t pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

template <class Value>
class PairMap {
 public:
  explicit PairMap(size_t pairs = 0) { resize(std::bit_ceil(2 * pairs + 16)); }

  /// The value of a key; null if there is none.
  const Value* find(uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == key ? &slot.value : nullptr;
  }
  /// The value of a key; Value() if the key is new. The reference is valid until the next call.
  Value& operator[](uint64_t key) {
    size_t at = place(key);
    if (slots_[at].key == key) return slots_[at].value;
    if (2 * ++size_ > slots_.size()) {
      grow();
      at = place(key);
    }
    slots_[at].key = key;
    return slots_[at].value;
  }
  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;
  struct Slot {
    uint64_t key = kNone;
    Value value{};
  };
  void resize(size_t slots) {
    slots_ = std::vector<Slot>(slots);
    shift_ = 64 - std::countr_zero(slots);
  }
  size_t place(uint64_t key) const {
    size_t at = (key * 0x9E3779B97F4A7C15U) >> shift_;
    while (slots_[at].key != key && slots_[at].key != kNone) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    resize(2 * old.size());
    for (Slot& slot : old)
      if (slot.key != kNone) slots_[place(slot.key)] = std::move(slot);
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  int shift_ = 0;
};

}  // namespace ladder
