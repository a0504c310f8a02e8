// Transfers and the work that they should hide behind: a check lets each wait for the other, so
// that it shows which of them comes too late. The check says which transfer belongs to which work.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/comm.h"
#include "common/run/backend.h"
#include "kernels/kernels.h"
#include "labs/messages_only.h"

namespace ladder::lab {

constexpr std::chrono::milliseconds kHeld{1000};  // then a transfer or a product goes on alone
constexpr std::chrono::milliseconds kOnWire{2};   // what a transfer takes on a slow wire

constexpr const char* kUnderWay = "under way during its product";

/// What was seen of one kind of transfer, in all cases and on all ranks. What has been found wrong
/// once is not waited for again.
struct Seen {
  std::atomic<bool> met{false};             ///< under way during its product, once at least
  std::atomic<const char*> wrong{nullptr};  ///< what was wrong first; null: nothing

  const char* verdict() const {
    const char* first = wrong;
    return first ? first : met ? kUnderWay : "not seen";
  }
};

/// A slow transfer ends after its product, a fast one before the product reads anything. What must
/// be waited for and is not shows with the one, and memory that is written too early with the
/// other.
enum class Wire : uint8_t { Slow, Fast };

/// Where transfers of one rank and the work that should hide them wait for each other. If the one
/// does not come, the other goes on after a while, and knows what is wrong.
class MeetingPlace {
 protected:
  /// @param seen one for each kind of transfer
  MeetingPlace(std::span<Seen> seen, Wire wire) : seen_(seen), wire_(wire) {}
  bool is_slow() const { return wire_ == Wire::Slow; }

  template <class Kind, class Met>
  void wait(std::unique_lock<std::mutex>& lock, Kind what, const char* otherwise, Met&& met) {
    Seen& seen = seen_[static_cast<size_t>(what)];
    if (seen.wrong) return;
    const char* none = nullptr;
    if (changed_.wait_for(lock, kHeld, met))
      seen.met = true;
    else
      seen.wrong.compare_exchange_strong(none, otherwise);
  }
  /// The transfer itself, for which `lock` is given back.
  void travel(std::unique_lock<std::mutex>& lock, const std::function<void()>& transfer) {
    lock.unlock();
    if (is_slow()) std::this_thread::sleep_for(kOnWire);
    transfer();
    lock.lock();
  }

  std::mutex mutex_;
  std::condition_variable changed_;

 private:
  std::span<Seen> seen_;
  Wire wire_;
};

/// `entry` becomes the kernel of the cpu table, which is passed to `meet` to be called.
template <auto kKernel, auto meet, class... More>
void let_meet(void (*&entry)(const Ctx&, Tensor, More...)) {
  entry = [](const Ctx& ctx, Tensor out, More... more) {
    meet([&] { (kernels_of("cpu").*kKernel)(ctx, out, more...); });
  };
}

/// Messages, and collectives and exchanges that meet products.
class MeetingComm : public MessagesOnly {
 public:
  /// Called with each transfer, which it must run.
  using Meet = std::function<void(Operation, const std::function<void()>& transfer)>;

  MeetingComm(Comm& comm, Meet meet)
      : MessagesOnly(comm, "those of Collectives"), meet_(std::move(meet)) {}

  /// Bytes that this rank has sent in groups that were made of this one.
  int64_t sent() const {
    int64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->statistics().wire_bytes();
    return bytes;
  }

  Pending iexchange(Tensor out, int to, Tensor inp, int from) override {
    if (current()) return Comm::iexchange(out, to, inp, from);  // inside of a collective
    meet_(Operation::Send, [&] { Comm::iexchange(out, to, inp, from).wait(); });
    return {};
  }

 private:
  void perform(const Call& call, const std::function<void()>& body) override {
    meet_(call.operation, body);
  }
  std::unique_ptr<Comm> do_split(int color, int key) override {
    parts_.push_back(comm_.split(color, key));
    return std::make_unique<MeetingComm>(*parts_.back(), meet_);
  }

  Meet meet_;
  std::vector<std::unique_ptr<Comm>> parts_;
};

}  // namespace ladder::lab
