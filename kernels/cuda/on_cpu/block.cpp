#include "kernels/cuda/on_cpu/block.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/on_cpu/fiber.h"
#include "kernels/cuda/on_cpu/random.h"
#include "kernels/cuda/on_cpu/schedule.h"
#include "kernels/cuda/on_cpu/warpgroup.h"

namespace ladder::on_cpu {

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

/// A cp.async that has not arrived yet.
struct Copy {
  void* to;
  const void* from;
  int group;
};
constexpr size_t kCopyBytes = 16;

void land(const Copy& copy) {
  if (copy.from)
    std::memcpy(copy.to, copy.from, kCopyBytes);
  else
    std::memset(copy.to, 0, kCopyBytes);
}

enum class State : uint8_t { Ready, AtBarrier, AtExchange, Done };

struct Thread {
  Fiber fiber;
  int index = 0;
  State state = State::Ready;
  // What it waits for.
  Where where;
  const char* name = nullptr;
  unsigned mask = 0;
  void* mine = nullptr;
  void (*exchange)(const Lanes&) = nullptr;
  std::vector<Copy> copies;
  int open_group = 0;
  Products products;

  int lane() const { return index % kLanes; }
};

/// "elementwise.cu:40"
std::string text(const Where& where) {
  const std::string_view path = where.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), where.line());
}

bool same_place(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

/// What a thread does instead of what another thread waits for.
std::string doing(const Thread& thread) {
  switch (thread.state) {
    case State::Ready: return "is running";
    case State::Done: return "has returned";
    case State::AtBarrier: return fmt::format("waits in __syncthreads at {}", text(thread.where));
    case State::AtExchange:
      return fmt::format("waits in {} at {} with mask {:#010x}", thread.name, text(thread.where),
                         thread.mask);
  }
  return "";
}

/// The threads of a block. All blocks of a launch use them, one after the other.
class Block {
 public:
  Block(Where where, int threads, int64_t shared_bytes, uint64_t seed,
        const std::function<void()>& kernel);

  Random& random() { return random_; }
  const SharedMemory& shared() const { return shared_; }
  Thread& running() { return *running_; }
  Thread& thread(int index) { return *threads_[static_cast<size_t>(index)]; }
  bool is_running() const { return running_ != nullptr; }

  /// Runs one block, at blockIdx. @throws what a thread threw
  void run();
  void meet_block(Where where);
  void meet_warp(Thread& self);
  [[noreturn]] void fail(const std::string& who, const std::string& what) const;

 private:
  void begin();
  void make_ready(Thread& thread);
  void resume(Thread& next);
  void open_barrier();
  bool all_at_exchange(const Thread& self);
  [[noreturn]] void report_stuck();
  [[noreturn]] void report(const Thread& waiting, int missing);

  Where where_;
  int count_;
  SharedMemory shared_;
  Random random_;
  std::function<void()> body_;  // the kernel, for one thread
  std::exception_ptr error_;
  std::vector<Thread*> threads_;
  std::vector<unsigned> at_exchange_;  // for each warp: the lanes that wait there
  Schedule schedule_;                  // all Ready threads except the running one
  Thread* running_ = nullptr;
};

/// The process runs one launch at a time, and keeps its fibers.
struct Process {
  std::mutex one_launch;
  Block* block = nullptr;
  std::vector<std::unique_ptr<Thread>> threads;
  uint64_t seed = 1;
};

/// Of the calling host thread. So a rank gets the same orders again, whatever other ranks do.
thread_local uint64_t launches = 0;

Process& process() {
  static Process the;
  [[maybe_unused]] static const bool from_environment = [] {
    const char* seed = std::getenv("LADDER_ON_CPU_SEED");
    if (!seed) return false;
    const auto read = std::from_chars(seed, seed + std::string_view(seed).size(), the.seed);
    CHECK(read.ec == std::errc{} && *read.ptr == 0, "LADDER_ON_CPU_SEED={} is no seed", seed);
    return true;
  }();
  return the;
}

Block& block() {
  CHECK(process().block, "a device function called outside of a kernel");
  return *process().block;
}

Block::Block(Where where, int threads, int64_t shared_bytes, uint64_t seed,
             const std::function<void()>& kernel)
    : where_(where),
      count_(threads),
      shared_(shared_bytes),
      random_(seed),
      at_exchange_(static_cast<size_t>(ceil_div(threads, kLanes))),
      schedule_(threads) {
  body_ = [this, &kernel] {
    try {
      kernel();
    } catch (...) {
      error_ = std::current_exception();
    }
  };
  auto& pool = process().threads;
  while (std::ssize(pool) < threads) pool.push_back(std::make_unique<Thread>());
  for (int i = 0; i < threads; ++i) threads_.push_back(pool[static_cast<size_t>(i)].get());
}

void Block::begin() {
  shared_.poison();
  if (watcher) watcher->begin_block(count_);
  schedule_.begin(random_);
  std::fill(at_exchange_.begin(), at_exchange_.end(), 0);
  for (int i = 0; i < count_; ++i) {
    Thread& t = thread(i);
    t.index = i;
    make_ready(t);
    t.copies.clear();
    t.open_group = 0;
    t.products = {};
    t.fiber.start(body_);
  }
}

void Block::make_ready(Thread& thread) {
  thread.state = State::Ready;
  schedule_.add(thread.index);
}

void Block::resume(Thread& next) {
  running_ = &next;
  threadIdx = {.x = static_cast<uint32_t>(next.index), .y = 0, .z = 0};
  next.fiber.resume();
  running_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

void Block::run() {
  begin();
  for (int live = count_; live > 0;) {
    if (schedule_.empty()) open_barrier();
    Thread& next = thread(schedule_.draw(random_));
    resume(next);
    if (!next.fiber.done()) continue;
    if (!next.products.started.empty())
      fail(fmt::format("thread {}", next.index), "has returned before its products");
    next.state = State::Done;
    --live;
  }
}

void Block::meet_block(Where where) {
  Thread& self = running();
  self.state = State::AtBarrier;
  self.where = where;
  self.fiber.pause();
}

/// When no thread can go on, all must be at one barrier.
void Block::open_barrier() {
  for (const Thread* t : threads_)
    if (t->state != State::AtBarrier || !same_place(t->where, threads_[0]->where)) report_stuck();
  if (watcher) {
    watcher->barrier();
    for (Thread* t : threads_)  // a copy that nobody has waited for may land behind the barrier
      for (const Copy& copy : t->copies)
        watcher->access(t->index, copy.to, kCopyBytes, Access::Write, nullptr);
  }
  for (Thread* t : threads_) make_ready(*t);
}

/// Whether the lanes that `self` waits for are waiting for the same exchange.
bool Block::all_at_exchange(const Thread& self) {
  const int warp = self.index / kLanes;
  if ((at_exchange_[static_cast<size_t>(warp)] & self.mask) != self.mask) return false;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(self.mask >> lane & 1)) continue;
    const Thread& other = thread(warp * kLanes + lane);
    if (other.mask != self.mask || other.exchange != self.exchange ||
        !same_place(other.where, self.where))
      return false;
  }
  return true;
}

void Block::meet_warp(Thread& self) {
  self.state = State::AtExchange;
  const int first = self.index - self.lane();
  unsigned& waiting = at_exchange_[static_cast<size_t>(first / kLanes)];
  waiting |= 1u << self.lane();
  if (!all_at_exchange(self)) return self.fiber.pause();
  // The last lane that comes lets the others go on.
  if (watcher && self.mask == ~0u) watcher->meet_warp(first);
  Lanes lanes{};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(self.mask >> lane & 1)) continue;
    Thread& other = thread(first + lane);
    lanes[static_cast<size_t>(lane)] = other.mine;
    if (&other != &self) make_ready(other);
  }
  self.state = State::Ready;
  waiting &= ~self.mask;
  self.exchange(lanes);
}

void Block::fail(const std::string& who, const std::string& what) const {
  throw CheckError(fmt::format("kernel launched at {}, block ({}, {}, {}), {}: {}", text(where_),
                               blockIdx.x, blockIdx.y, blockIdx.z, who, what));
}

void Block::report(const Thread& waiting, int missing) {
  const std::string who = fmt::format("warp {}, thread {}", waiting.index / kLanes, waiting.index);
  const std::string other = missing < count_ ? doing(thread(missing)) : "does not exist";
  fail(who, fmt::format("{}, but thread {} {}", doing(waiting), missing, other));
}

/// Names one thread that waits, and one thread that it waits for in vain.
void Block::report_stuck() {
  for (const Thread* t : threads_) {
    if (t->state != State::AtExchange) continue;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int index = t->index - t->lane() + lane;
      if (!(t->mask >> lane & 1)) continue;
      if (index >= count_) report(*t, index);
      const Thread& other = thread(index);
      if (other.state != State::AtExchange || other.mask != t->mask ||
          other.exchange != t->exchange || !same_place(other.where, t->where))
        report(*t, index);
    }
  }
  const auto waits = [](const Thread* t) { return t->state == State::AtBarrier; };
  const Thread* first = *std::find_if(threads_.begin(), threads_.end(), waits);
  for (const Thread* t : threads_)
    if (!waits(t) || !same_place(t->where, first->where)) report(*first, t->index);
  fail("all threads", "wait for each other");
}

void run_blocks(Block& block, const Grid& grid) {
  const int64_t count = grid.x * grid.y * grid.z;
  const int64_t step = random_step(block.random(), count);
  auto at = static_cast<int64_t>(block.random().below(static_cast<uint64_t>(count)));
  for (int64_t i = 0; i < count; ++i, at = (at + step) % count) {
    blockIdx = {.x = static_cast<uint32_t>(at % grid.x),
                .y = static_cast<uint32_t>(at / grid.x % grid.y),
                .z = static_cast<uint32_t>(at / grid.x / grid.y)};
    block.run();
  }
}

}  // namespace

void run_grid(Where where, const Grid& grid, int threads, int64_t shared_bytes,
              const std::function<void()>& kernel) {
  CHECK(threads >= 1 && threads <= kMaxThreads, "{}: {} threads", text(where), threads);
  CHECK(grid.x >= 0 && grid.y >= 0 && grid.z >= 0, "{}: a grid of ({}, {}, {})", text(where),
        grid.x, grid.y, grid.z);
  check_grid(grid);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;

  Process& the = process();
  const std::lock_guard lock(the.one_launch);
  blockDim = {.x = static_cast<uint32_t>(threads)};
  gridDim = {.x = static_cast<uint32_t>(grid.x),
             .y = static_cast<uint32_t>(grid.y),
             .z = static_cast<uint32_t>(grid.z)};
  Block block(where, threads, shared_bytes, the.seed + ++launches * 0x100000001u, kernel);
  the.block = &block;
  if (watcher) watcher->begin_launch(text(where));
  const std::unique_ptr<Process, void (*)(Process*)> leave(&the,
                                                           [](Process* p) { p->block = nullptr; });
  run_blocks(block, grid);
}

void set_seed(uint64_t seed) {
  Process& the = process();
  const std::lock_guard lock(the.one_launch);
  the.seed = seed;
  launches = 0;
}

void meet_block(Where where) { block().meet_block(where); }

void meet_warp(const char* name, unsigned mask, void* mine, void (*exchange)(const Lanes&),
               Where where) {
  Thread& self = block().running();
  self.where = where;
  self.name = name;
  self.mask = mask;
  self.mine = mine;
  self.exchange = exchange;
  if (!(mask >> self.lane() & 1))
    fail(fmt::format("{} at {} with mask {:#010x}, which leaves out lane {} itself", name,
                     text(where), mask, self.lane()));
  block().meet_warp(self);
}

int lane_of_thread() { return block().running().lane(); }

void* dynamic_shared_memory() { return block().shared().dynamic(); }

void fail(const std::string& what) {
  block().fail(fmt::format("thread {}", block().running().index), what);
}

void check_shared(const void* p, int64_t bytes, const char* what) {
  if (!block().shared().holds(p, bytes)) fail(fmt::format("{} outside of shared memory", what));
  if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0)
    fail(fmt::format("{} not aligned to {} bytes", what, bytes));
}

int running_thread() {
  Block* const block = process().block;
  return block && block->is_running() ? block->running().index : -1;
}

Memory memory_of(const void* p) {
  if (block().shared().holds(p, 1)) return Memory::Shared;
  return is_device_memory(p) ? Memory::Device : Memory::Other;
}

int64_t shared_offset(const void* p) { return block().shared().offset(p); }

void tell(const void* at, int64_t bytes, Access how, const void* from) {
  if (watcher) watcher->access(block().running().index, at, bytes, how, from);
}

uint64_t draw_below(uint64_t n) { return block().random().below(n); }

Products& products_of(int thread) { return block().thread(thread).products; }

void start_copy(void* to, const void* from) {
  check_shared(to, kCopyBytes, "cp.async to an address");
  if (reinterpret_cast<uintptr_t>(from) % kCopyBytes != 0)
    fail("cp.async from an address not aligned to 16 bytes");
  Thread& self = block().running();
  const Copy copy{.to = to, .from = from, .group = self.open_group};
  tell(to, kCopyBytes, Access::Write, reinterpret_cast<const void*>(&start_copy));
  if (from) tell(from, kCopyBytes, Access::Read, reinterpret_cast<const void*>(&land_copies));
  if (!watcher && block().random().below(2) == 0)
    land(copy);
  else
    self.copies.push_back(copy);
}

void close_copy_group() { ++block().running().open_group; }

void land_copies(int pending_groups) {
  Thread& self = block().running();
  auto copy = self.copies.begin();
  for (; copy != self.copies.end() && copy->group < self.open_group - pending_groups; ++copy) {
    tell(copy->to, kCopyBytes, Access::Write, nullptr);
    land(*copy);
  }
  self.copies.erase(self.copies.begin(), copy);
}

}  // namespace ladder::on_cpu
