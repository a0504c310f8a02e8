// FaultyComm: a communicator with one planted fault. Tests of equal bits must fail with it. A
// reader can use it (--fault) to see what a lost or doubled message does to training.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/comm.h"
#include "common/comm/failure.h"
#include "common/error.h"
#include "common/names.h"
#include "kernels/check.h"
#include "kernels/transfer.h"

namespace ladder {

/// What goes wrong in collective `nth` of a kind, or in message `nth` that a rank receives in any
/// group. Both count from 0. Each group counts its own collectives, so that all its ranks mean the
/// same one; the fault may happen in several groups. If a group is split into a group of all its
/// ranks, both share a count; where a thread uses such a group meanwhile, ranks may differ in which
/// of two calls they count first. Messages that a collective is made of do not count. Neither do
/// collectives of bytes, which carry the texts that ranks report at the end.
struct Fault {
  enum class Kind : uint8_t {
    None,
    Skip,     ///< no rank does it; a lost message leaves its tensor as it was
    Corrupt,  ///< one bit of rank 0's result flips
    Twice,    ///< done again on its own result: sums count double; not for messages
    Swap,     ///< the halves of every rank's result are exchanged
    Stall,    ///< the last rank of the group sleeps forever
    Die,      ///< the last rank's process ends as by `kill -9`, with all threads
    Fail,     ///< the last rank throws an error
  };
  Kind kind = Kind::None;
  Operation operation = Operation::AllReduce;
  int64_t nth = 0;
};
constexpr auto names_of(Fault::Kind) {
  return std::array{"none", "skip", "corrupt", "twice", "swap", "stall", "die", "fail"};
}

/// Passes every call on to another Comm. Every rank wraps its own Comm, with the same fault.
class FaultyComm : public Comm {
 public:
  /// @param inner must live longer
  FaultyComm(Comm& inner, Fault fault)
      : FaultyComm(inner, nullptr, fault, new_count(), new_count(), inner.rank()) {
    CHECK(fault.operation != Operation::Recv || fault.kind != Fault::Kind::Twice,
          "a message comes once: who receives it again waits for ever");
  }

  std::string_view kind() const override { return inner_.kind(); }
  void abandon() noexcept override { inner_.abandon(); }
  void attach(Device* device) override {
    Comm::attach(device);
    inner_.attach(device);
  }
  /// How many operations of the fault's kind have been seen. For collectives it is the count of the
  /// group that had the most, of this group and those split off. For messages: all that this rank
  /// received.
  int64_t seen() const { return *most_; }

 protected:
  void perform(const Call& call, const std::function<void()>& body) override {
    const Fault::Kind kind = met(call.operation, call.payload.dtype);
    if (kind == Fault::Kind::Skip) return;
    body();
    if (kind == Fault::Kind::Twice) body();
    spoil(kind, call.result);
  }

  // The other Comm checks where tensors lie.
  void check_place(const Tensor&) const override {}
  void do_all_reduce(Tensor data, Combine how) override { inner_.all_reduce(data, how); }
  void do_reduce_scatter(Tensor out, Tensor inp) override { inner_.reduce_scatter(out, inp); }
  void do_all_gather(Tensor out, Tensor inp) override { inner_.all_gather(out, inp); }
  void do_broadcast(Tensor data, int root) override { inner_.broadcast(data, root); }
  void do_all_to_all(Tensor out, Tensor inp) override { inner_.all_to_all(out, inp); }
  void do_barrier() override { inner_.barrier(); }
  Pending do_isend(Tensor data, int to) override { return inner_.isend(data, to); }
  Pending do_irecv(Tensor data, int from) override {
    const Fault::Kind kind = current()->operation == Operation::Recv
                                 ? met(Operation::Recv, data.dtype)
                                 : Fault::Kind::None;
    if (kind == Fault::Kind::None) return inner_.irecv(data, from);
    return Pending(std::make_unique<Spoilt>(*this, kind, data, from));
  }
  std::unique_ptr<Comm> do_split(int color, int key) override {
    std::unique_ptr<Comm> part = inner_.split(color, key);
    Comm& inner = *part;
    const Count count = inner.size() == size() ? count_ : new_count();
    return std::unique_ptr<Comm>(
        new FaultyComm(inner, std::move(part), fault_, count, most_, rank_of_all_));
  }

 private:
  using Count = std::shared_ptr<std::atomic<int64_t>>;
  static Count new_count() { return std::make_shared<std::atomic<int64_t>>(0); }
  FaultyComm(Comm& inner, std::unique_ptr<Comm> owned, Fault fault, Count count, Count most,
             int rank_of_all)
      : Comm(inner.rank(), inner.size()),
        owned_(std::move(owned)),
        inner_(inner),
        fault_(fault),
        count_(std::move(count)),
        most_(std::move(most)),
        rank_of_all_(rank_of_all) {}

  /// A message that arrives with the fault.
  class Spoilt : public Pending::Work {
   public:
    Spoilt(FaultyComm& comm, Fault::Kind kind, Tensor data, int from)
        : comm_(comm), kind_(kind), data_(data) {
      const HostCopy host = HostCopy::of(comm.device_ctx(), data);
      const auto* bytes = static_cast<const std::byte*>(host.tensor().ptr);
      before_.assign(bytes, bytes + data.bytes());
      arriving_ = comm.inner_.irecv(data, from);
    }
    void wait() override {
      arriving_.wait();
      comm_.spoil(kind_, data_);
      if (kind_ != Fault::Kind::Skip) return;
      const HostCopy host = HostCopy::to_write(comm_.device_ctx(), data_);
      std::ranges::copy(before_, static_cast<std::byte*>(host.tensor().ptr));
      host.send();
    }

   private:
    FaultyComm& comm_;
    Fault::Kind kind_;
    Tensor data_;
    std::vector<std::byte> before_;
    Pending arriving_;
  };

  /// What goes wrong in this operation. Counts it. A rank that stalls, dies or fails does not
  /// return.
  Fault::Kind met(Operation operation, Dtype dtype) {
    if (operation != fault_.operation || dtype == Dtype::U8) return Fault::Kind::None;
    const int64_t nth = operation == Operation::Recv ? (*most_)++ : (*count_)++;
    int64_t most = *most_;
    while (most <= nth && !most_->compare_exchange_weak(most, nth + 1)) continue;
    if (nth != fault_.nth) return Fault::Kind::None;
    if (fault_.kind < Fault::Kind::Stall) return fault_.kind;
    if (rank() == size() - 1) fall_out();
    return Fault::Kind::None;
  }
  [[noreturn]] void fall_out() const {
    if (fault_.kind == Fault::Kind::Fail)
      throw UserError("--fault: this rank fails in {}", to_string(*current()));
    const bool dies = fault_.kind == Fault::Kind::Die;
    tell(fmt::format("note: --fault: rank {} {} in {}", rank_of_all_, dies ? "dies" : "stalls",
                     to_string(*current())));
    if (dies) std::raise(SIGKILL);
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  void spoil(Fault::Kind kind, const Tensor& result) {
    if (kind == Fault::Kind::Corrupt && rank() == 0) flip_bit(result);
    if (kind == Fault::Kind::Swap) swap_halves(result);
  }

  /// Flips the lowest bit of the middle element. A test of "nearly equal" would not see it.
  void flip_bit(const Tensor& result) {
    const HostCopy host = HostCopy::of(device_ctx(), result);
    const int64_t at = result.size() / 2 * size_of(result.dtype);
    if (result.size() > 0) static_cast<uint8_t*>(host.tensor().ptr)[at] ^= 1;
    host.send();
  }
  void swap_halves(const Tensor& result) {
    const HostCopy host = HostCopy::of(device_ctx(), result);
    auto* bytes = static_cast<std::byte*>(host.tensor().ptr);
    const int64_t half = result.size() / 2 * size_of(result.dtype);
    std::swap_ranges(bytes, bytes + half, bytes + half);
    host.send();
  }

  std::unique_ptr<Comm> owned_;  ///< of a split; otherwise null
  Comm& inner_;
  Fault fault_;
  Count count_;  ///< collectives of this group
  Count most_;   ///< collectives of the group with the most; of messages, all
  int rank_of_all_;
};

}  // namespace ladder
