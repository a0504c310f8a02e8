// FaultyComm: a communicator with one planted fault. A test of equal bits must fail under it, and a
// reader may see (--fault) what a lost or doubled message does to training.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "common/comm/comm.h"
#include "kernels/transfer.h"

namespace ladder {

/// What goes wrong in collective `nth` (from 0) of a kind, those of split groups counted, too.
struct Fault {
  enum class Kind : uint8_t {
    None,
    Skip,     ///< no rank does it
    Corrupt,  ///< one bit of the result of rank 0 flips
    Twice,    ///< it is done again with its own result: sums count double
    Swap,     ///< the halves of every rank's result change places
  };
  Kind kind = Kind::None;
  Operation operation = Operation::AllReduce;
  int64_t nth = 0;
};

/// Passes everything on to another Comm. Every rank wraps its own, with the same fault.
class FaultyComm : public Comm {
 public:
  /// @param inner must live longer
  FaultyComm(Comm& inner, Fault fault)
      : FaultyComm(inner, nullptr, fault, std::make_shared<std::atomic<int64_t>>(0)) {}

  std::string_view kind() const override { return inner_.kind(); }
  void abandon() noexcept override { inner_.abandon(); }
  void attach(Device* device) override {
    Comm::attach(device);
    inner_.attach(device);
  }
  /// Whether the fault has happened: a control that never met it controls nothing.
  bool happened() const { return *seen_ > fault_.nth; }

 protected:
  void perform(const Call& call, const std::function<void()>& body) override {
    const bool hit = call.operation == fault_.operation && (*seen_)++ == fault_.nth;
    const Fault::Kind kind = hit ? fault_.kind : Fault::Kind::None;
    if (kind == Fault::Kind::Skip) return;
    body();
    if (kind == Fault::Kind::Twice) body();
    if (kind == Fault::Kind::Corrupt && rank() == 0) flip_bit(call.result);
    if (kind == Fault::Kind::Swap) swap_halves(call.result);
  }

  // The other Comm checks where tensors lie.
  void check_place(const Tensor&) const override {}
  void do_all_reduce(Tensor data, Combine how) override { inner_.all_reduce(data, how); }
  void do_reduce_scatter(Tensor out, Tensor inp, Combine how) override {
    inner_.reduce_scatter(out, inp, how);
  }
  void do_all_gather(Tensor out, Tensor inp) override { inner_.all_gather(out, inp); }
  void do_broadcast(Tensor data, int root) override { inner_.broadcast(data, root); }
  void do_all_to_all(Tensor out, Tensor inp) override { inner_.all_to_all(out, inp); }
  void do_barrier() override { inner_.barrier(); }
  Pending do_isend(Tensor data, int to) override { return inner_.isend(data, to); }
  Pending do_irecv(Tensor data, int from) override { return inner_.irecv(data, from); }
  std::unique_ptr<Comm> do_split(int color, int key) override {
    std::unique_ptr<Comm> part = inner_.split(color, key);
    Comm& inner = *part;
    return std::unique_ptr<Comm>(new FaultyComm(inner, std::move(part), fault_, seen_));
  }

 private:
  using Count = std::shared_ptr<std::atomic<int64_t>>;
  FaultyComm(Comm& inner, std::unique_ptr<Comm> owned, Fault fault, Count seen)
      : Comm(inner.rank(), inner.size()),
        owned_(std::move(owned)),
        inner_(inner),
        fault_(fault),
        seen_(std::move(seen)) {}

  /// The lowest bit of the middle element: what a test of "nearly equal" would not see.
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

  std::unique_ptr<Comm> owned_;  ///< of a split; else null
  Comm& inner_;
  Fault fault_;
  Count seen_;
};

}  // namespace ladder
