// Transfers and the work that they should hide behind: a check lets each wait for the other, so
// that it shows which of them comes too late. The check says which transfer belongs to which work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/comm.h"

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

/// Messages, and collectives and exchanges that meet products.
class MeetingComm : public Comm {
 public:
  /// Called with each transfer, which it must run.
  using Meet = std::function<void(Operation, const std::function<void()>& transfer)>;

  MeetingComm(Comm& comm, Meet meet)
      : Comm(comm.rank(), comm.size()), comm_(comm), meet_(std::move(meet)) {}
  std::string_view kind() const override { return "meeting"; }
  void abandon() noexcept override { comm_.abandon(); }

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
  Pending do_isend(Tensor data, int to) override { return comm_.isend(data, to); }
  Pending do_irecv(Tensor data, int from) override { return comm_.irecv(data, from); }
  std::unique_ptr<Comm> do_split(int color, int key) override {
    parts_.push_back(comm_.split(color, key));
    return std::make_unique<MeetingComm>(*parts_.back(), meet_);
  }

  [[noreturn]] static void refuse() {
    throw CheckError("a collective of Comm was called; this lab takes those of Reducer");
  }
  void do_all_reduce(Tensor, Combine) override { refuse(); }
  void do_reduce_scatter(Tensor, Tensor, Combine) override { refuse(); }
  void do_all_gather(Tensor, Tensor) override { refuse(); }
  void do_broadcast(Tensor, int) override { refuse(); }
  void do_all_to_all(Tensor, Tensor) override { refuse(); }
  void do_barrier() override { refuse(); }

  Comm& comm_;
  Meet meet_;
  std::vector<std::unique_ptr<Comm>> parts_;
};

}  // namespace ladder::lab
