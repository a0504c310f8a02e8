#include "kernels/cuda/on_cpu/watch.h"

#include <algorithm>
#include <array>
#include <cuda_runtime.h>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace ladder::on_cpu {
namespace {

constexpr uintptr_t kWord = 4, kSector = 32, kBanks = 32;
constexpr size_t kMostRaces = 20;

/// Who touched which bytes of a word, and how.
struct Record {
  int thread;
  uint64_t block;
  uint32_t clock;  ///< of the thread: how often its warp has met in __syncwarp
  uint8_t bytes;   ///< a bit for each
  Access how;
};

bool may_not_meet(const Record& a, const Record& b) {
  const bool both_read = a.how == Access::Read && b.how == Access::Read;
  const bool both_atomic = a.how == Access::Atomic && b.how == Access::Atomic;
  return (a.bytes & b.bytes) != 0 && !both_read && !both_atomic;
}

/// Who touched a word: `here`, in the block that runs since its last barrier (which began an era);
/// `of_blocks`, in any block of the launch.
struct Word {
  uint64_t era = 0;
  std::vector<Record> here, of_blocks;
};

/// The same access of the lanes of a warp: of one place in the code, for the nth time since they
/// met.
struct Joint {
  Memory memory;
  Access how;
  int64_t bytes;
  std::vector<std::pair<int, uintptr_t>> lanes;  ///< lane, address
};

class Watch final : public Watcher {
 public:
  Watch() { watcher = this; }

  Watched take() {
    barrier();  // counts what is left
    told_.clear();
    return std::exchange(seen_, {});
  }

  void forbid(uintptr_t begin, uintptr_t bytes) {
    if (bytes == 0)
      forbidden_.erase(begin);
    else
      forbidden_[begin] = begin + bytes;
  }

  void begin_launch(const std::string& kernel) override {
    kernel_ = kernel;
    words_.clear();
  }

  void begin_block(int threads) override {
    barrier();
    ++block_;
    clock_.assign(static_cast<size_t>(threads), 1);
    known_.assign(static_cast<size_t>(threads), {});
  }

  void barrier() override {
    for (const auto& [place, joint] : joint_) count(joint);
    joint_.clear();
    turn_.clear();
    ++era_;
  }

  /// Lanes that a branch has parted go on together: what was before is no access of the same time.
  void meet_warp(int first) override {
    const int warp = first / kLanes;
    const auto from = joint_.lower_bound({warp, nullptr, 0}),
               to = joint_.lower_bound({warp + 1, nullptr, 0});
    for (auto it = from; it != to; ++it) count(it->second);
    joint_.erase(from, to);
    turn_.erase(turn_.lower_bound({first, nullptr}), turn_.lower_bound({first + kLanes, nullptr}));
  }

  void float_atomic() override { ++seen_.float_atomics; }

  /// Lanes that have met know what each of them knows.
  void sync_warp(int first, unsigned mask) override {
    std::array<uint32_t, kLanes> all{};
    each_lane(first, mask, [&](size_t thread, size_t lane) {
      known_[thread][lane] = clock_[thread]++;
      for (size_t i = 0; i < kLanes; ++i) all[i] = std::max(all[i], known_[thread][i]);
    });
    each_lane(first, mask, [&](size_t thread, size_t) { known_[thread] = all; });
  }

  void access(int thread, const void* at, int64_t bytes, Access how, const void* from) override {
    const Memory memory = memory_of(at);
    if (memory == Memory::Other) return;
    const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + static_cast<uintptr_t>(bytes);
    if (memory == Memory::Device && is_forbidden(begin, end)) ++seen_.forbidden;
    for (uintptr_t word = begin / kWord; word <= (end - 1) / kWord; ++word) {
      unsigned mask = 0;
      for (uintptr_t i = 0; i < kWord; ++i)
        if (word * kWord + i >= begin && word * kWord + i < end) mask |= 1U << i;
      touch(words_[word], memory,
            {.thread = thread,
             .block = block_,
             .clock = clock_[static_cast<size_t>(thread)],
             .bytes = static_cast<uint8_t>(mask),
             .how = how},
            at);
    }
    if (!from) return;  // what a copy does later was counted when it began
    const int nth = turn_[{thread, from}]++;
    Joint& joint = joint_[{thread / kLanes, from, nth}];
    joint.memory = memory, joint.how = how, joint.bytes = bytes;
    joint.lanes.emplace_back(thread % kLanes, begin);
  }

 private:
  template <class F>
  void each_lane(int first, unsigned mask, F f) {
    for (int lane = 0; lane < kLanes; ++lane)
      if (mask >> lane & 1) f(static_cast<size_t>(first + lane), static_cast<size_t>(lane));
  }

  bool is_forbidden(uintptr_t begin, uintptr_t end) const {
    const auto behind = forbidden_.lower_bound(end);
    return behind != forbidden_.begin() && std::prev(behind)->second > begin;
  }

  bool ordered(const Record& before, int thread) const {
    if (before.thread == thread) return true;
    if (before.thread / kLanes != thread / kLanes) return false;
    return known_[static_cast<size_t>(thread)][static_cast<size_t>(before.thread % kLanes)] >=
           before.clock;
  }

  void touch(Word& word, Memory memory, const Record& now, const void* at) {
    if (word.era != era_) {
      word.era = era_;
      word.here.clear();
    }
    for (const Record& before : word.here)
      if (may_not_meet(before, now) && !ordered(before, now.thread))
        report(before, now, memory, at);
    // Between blocks an atomic may be a signal that orders others: it is left out.
    for (const Record& before : word.of_blocks)
      if (before.block != now.block && may_not_meet(before, now) && before.how != Access::Atomic &&
          now.how != Access::Atomic)
        report(before, now, memory, at);
    remember(word.here, now,
             [](const Record& r) { return static_cast<uint64_t>(r.thread / kLanes); });
    if (memory == Memory::Device)
      remember(word.of_blocks, now, [](const Record& r) { return r.block; });
  }

  /// Two groups (warps, or blocks) are enough: whoever comes later meets one that is not its own.
  template <class Group>
  static void remember(std::vector<Record>& records, const Record& now, Group group) {
    std::set<uint64_t> others;
    for (Record& before : records) {
      if (before.how != now.how || before.bytes != now.bytes) continue;
      if (before.thread == now.thread && before.block == now.block) {
        before.clock = now.clock;
        return;
      }
      if (group(before) != group(now)) others.insert(group(before));
    }
    if (others.size() < 2) records.push_back(now);
  }

  void report(const Record& before, const Record& now, Memory memory, const void* at) {
    static constexpr const char* kHow[] = {"reads", "writes", "adds to"};
    ++seen_.race_count;
    const std::pair<int, int> pair{before.thread, now.thread};
    if (seen_.races.size() >= kMostRaces || !told_.insert({kernel_, pair}).second) return;
    seen_.races.push_back(fmt::format(
        "{}: {} memory, {}: {} {} what {} {}, and no barrier is between", kernel_,
        memory == Memory::Shared ? "shared" : "device", offset(at, memory), who(now),
        kHow[static_cast<int>(now.how)], who(before), kHow[static_cast<int>(before.how)]));
  }

  std::string who(const Record& r) const {
    return r.block == block_ ? fmt::format("thread {}", r.thread)
                             : fmt::format("thread {} of another block", r.thread);
  }

  static std::string offset(const void* at, Memory memory) {
    return memory == Memory::Shared ? fmt::format("byte {}", shared_offset(at))
                                    : std::string("a tensor");
  }

  void count(const Joint& joint) { joint.memory == Memory::Shared ? banks(joint) : sectors(joint); }

  /// A warp's access of 4 bytes a lane is one turn, of 8 two, of 16 four; each bank gives one word
  /// a turn.
  void banks(const Joint& joint) {
    const int together = static_cast<int>(std::clamp<int64_t>(4 * kLanes / joint.bytes, 1, kLanes));
    std::map<int, std::map<uintptr_t, std::set<uintptr_t>>> words;  // of a turn and a bank
    for (const auto& [lane, at] : joint.lanes)
      for (uintptr_t word = at / kWord;
           word <= (at + static_cast<uintptr_t>(joint.bytes) - 1) / kWord; ++word)
        words[lane / together][word % kBanks].insert(word);
    for (const auto& [turn, of_turn] : words) {
      size_t most = 0;
      for (const auto& [bank, of_bank] : of_turn) most = std::max(most, of_bank.size());
      seen_.shared_turns += static_cast<int64_t>(most);
      seen_.bank_conflicts += static_cast<int64_t>(most) - 1;
    }
  }

  void sectors(const Joint& joint) {
    std::set<uintptr_t> touched;
    for (const auto& [lane, at] : joint.lanes)
      for (uintptr_t i = at / kSector;
           i <= (at + static_cast<uintptr_t>(joint.bytes) - 1) / kSector; ++i)
        touched.insert(i);
    const auto bytes = static_cast<int64_t>(touched.size() * kSector);
    if (joint.how != Access::Write) seen_.bytes_read += bytes;
    if (joint.how != Access::Read) seen_.bytes_written += bytes;
  }

  Watched seen_;
  std::string kernel_;
  uint64_t block_ = 0, era_ = 1;
  std::vector<uint32_t> clock_;                      // of each thread
  std::vector<std::array<uint32_t, kLanes>> known_;  // of each thread: clocks of its warp's lanes
  std::map<uintptr_t, uintptr_t> forbidden_;         // from where to where
  std::unordered_map<uintptr_t, Word> words_;
  std::map<std::pair<int, const void*>, int> turn_;  // how often a thread has been at a place
  std::map<std::tuple<int, const void*, int>, Joint> joint_;  // by warp, place, nth
  std::set<std::pair<std::string, std::pair<int, int>>> told_;
};

Watch& watch() {
  static Watch the;
  return the;
}

void touch(const void* at, int64_t bytes, Access how, const void* from) {
  if (const int thread = running_thread(); thread >= 0)
    watch().access(thread, at, bytes, how, from);
}

[[maybe_unused]] const Watch& from_the_start = watch();

}  // namespace

Watched take_watched() { return watch().take(); }
void forbid(const void* begin, int64_t bytes) {
  watch().forbid(reinterpret_cast<uintptr_t>(begin), static_cast<uintptr_t>(bytes));
}

}  // namespace ladder::on_cpu

// What g++ and clang++ call with -fsanitize=thread.
#define LADDER_FROM __builtin_return_address(0)
#define LADDER_TOUCH(bytes)                                                       \
  void __tsan_read##bytes(void* at) {                                             \
    ladder::on_cpu::touch(at, bytes, ladder::on_cpu::Access::Read, LADDER_FROM);  \
  }                                                                               \
  void __tsan_write##bytes(void* at) {                                            \
    ladder::on_cpu::touch(at, bytes, ladder::on_cpu::Access::Write, LADDER_FROM); \
  }                                                                               \
  void __tsan_unaligned_read##bytes(void* at) {                                   \
    ladder::on_cpu::touch(at, bytes, ladder::on_cpu::Access::Read, LADDER_FROM);  \
  }                                                                               \
  void __tsan_unaligned_write##bytes(void* at) {                                  \
    ladder::on_cpu::touch(at, bytes, ladder::on_cpu::Access::Write, LADDER_FROM); \
  }
extern "C" {
LADDER_TOUCH(1)
LADDER_TOUCH(2)
LADDER_TOUCH(4)
LADDER_TOUCH(8)
LADDER_TOUCH(16)
void __tsan_read_range(void* at, size_t bytes) {
  ladder::on_cpu::touch(at, static_cast<int64_t>(bytes), ladder::on_cpu::Access::Read, LADDER_FROM);
}
void __tsan_write_range(void* at, size_t bytes) {
  ladder::on_cpu::touch(at, static_cast<int64_t>(bytes), ladder::on_cpu::Access::Write,
                        LADDER_FROM);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
