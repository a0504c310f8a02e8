// Comm: a group of ranks that exchange tensors.
//
// Sizes and dtypes come from the tensors. All ranks of a group call the same operations in the same
// order, with equal sizes. Some backends notice ranks that do not, and report them.
//
// The collectives here add floats in whatever order the backend likes (the "reordered" tier). Sums
// of integers, and maxima, have the same bits in any order. Sums in an order of our own are made of
// messages: see common/comm/reduction.h.
//
// Tensors lie in host memory, or on the device that attach() named.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/chunks.h"
#include "common/comm/patience.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// Communication throws this if it cannot end because another rank has failed.
class Aborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An operation under way. Its tensors belong to it until wait() returns.
class [[nodiscard]] Pending {
 public:
  class Work {
   public:
    Work() = default;
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    /// Gives the tensors back, also if an exception came before wait().
    virtual ~Work() = default;
    virtual void wait() = 0;
  };

  /// An operation that is already done.
  Pending() = default;
  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}

  /// Blocks, without spinning, until the operation is done. A second call does nothing.
  /// @throws what the operation threw
  void wait() {
    if (const std::unique_ptr<Work> work = std::move(work_)) work->wait();
  }

 private:
  std::unique_ptr<Work> work_;
};

/// A rank's side of a group. One thread at a time may use it. A thread that communicates while the
/// rank computes gets a group of its own by split().
class Comm {
 public:
  Comm(int rank, int size, const Patience& patience = {})
      : rank_(rank), size_(size), patience_(patience) {}
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// How long it waits for others.
  const Patience& patience() const { return patience_; }
  /// "self", "thread", "mpi", "nccl"
  virtual std::string_view kind() const = 0;

  /// From here on, this rank's tensors may lie on `device`, also in groups that split() makes
  /// later. Null means that they may lie on no device. A thread that communicates while the rank
  /// computes has a group and a device of its own.
  ///
  /// Every operation on Place::Device or Shared first waits for everything that is queued on the
  /// device. Once the operation, or wait(), has returned, work that is queued later can use the
  /// result.
  virtual void attach(Device* device) { device_.device = device; }
  Device* device() const { return device_.device; }

  // ---- collectives: every rank calls them ------------------------------------------------------
  // In shapes N is size(), and n is the number of elements of a chunk.

  /// In place: data = the sum or the maximum over ranks. Any size. F32 F64 BF16 F16 I32 I64; for
  /// Max also U8
  void all_reduce(Tensor data, Combine combine = Combine::Sum);

  /// out = chunk rank() of the sum. out may be that chunk of inp.
  /// inp (N n); out (n); dtypes as in all_reduce. @throws CheckError if the chunks are not equal
  void reduce_scatter(Tensor out, Tensor inp);

  /// out = inp of all ranks, in the order of ranks. inp may be chunk rank() of out.
  /// out (N n); inp (n); any dtype. @throws CheckError if the chunks are not equal
  void all_gather(Tensor out, Tensor inp);

  /// data = the data of rank `root`. Any size and dtype
  void broadcast(Tensor data, int root);

  /// Chunk i of out = chunk rank() of rank i's inp. This is a transpose.
  /// out, inp (N n), any dtype, in different memory. @throws CheckError if the chunks are not equal
  void all_to_all(Tensor out, Tensor inp);

  /// Returns when every rank has called it.
  void barrier();

  /// Ranks of one color (from 0 on) form a new group. Their order there is by key, then by rank
  /// here. Every rank calls it. The statistics of the new group start at zero.
  std::unique_ptr<Comm> split(int color, int key);

  // ---- messages: between two ranks, in the order in which they were sent -----------------------
  /// Returns when `data` may be changed. That may be only when the other rank receives it.
  void send(Tensor data, int to) { isend(data, to).wait(); }
  void recv(Tensor data, int from) { irecv(data, from).wait(); }
  /// The same, but return at once. Both sides must have the same size and dtype. A message to
  /// oneself is refused.
  Pending isend(Tensor data, int to);
  Pending irecv(Tensor data, int from);
  /// Sends and receives at the same time, so two partners may both call it. A null or empty tensor
  /// is not sent.
  void exchange(Tensor out, int to, Tensor inp, int from) { iexchange(out, to, inp, from).wait(); }
  /// The same, but returns at once. If one side uses an exchange, the other side must use one, too:
  /// NcclComm sends exchanges and single messages in different ways.
  virtual Pending iexchange(Tensor out, int to, Tensor inp, int from);

  // ---- collectives made of messages ------------------------------------------------------------
  /// Runs `messages` as one operation. Their bytes are counted under `call`, and ranks that are in
  /// different calls are noticed.
  void collective(const Call& call, const std::function<void()>& messages);

  const CommStatistics& statistics() const { return statistics_; }

  /// Makes everything that waits in this communicator, in any thread of this rank, throw Aborted.
  /// The rank is about to fail, and must first join a thread that communicates.
  virtual void abandon() noexcept = 0;

 protected:
  /// What the rank is doing: a collective, or one message.
  const Call* current() const { return current_; }

  /// All collectives pass through here. The communicator of a test plants its faults here.
  virtual void perform(const Call&, const std::function<void()>& body) { body(); }
  /// @throws CheckError if `data` lies on a device but no device is attached
  virtual void check_place(const Tensor& data) const;
  /// Checks and counts one message.
  Call message(Operation operation, Tensor data, int peer);
  /// Waits for everything queued on the device, because it may read or write these tensors.
  void settle(const Tensor& data, const Tensor& other = {}) const;
  /// For HostCopy, if this backend cannot reach a tensor where it lies.
  const Ctx& device_ctx() const { return device_; }

  // Sizes were checked before.
  virtual void do_all_reduce(Tensor data, Combine combine) = 0;
  virtual void do_reduce_scatter(Tensor out, Tensor inp) = 0;
  virtual void do_all_gather(Tensor out, Tensor inp) = 0;
  virtual void do_broadcast(Tensor data, int root) = 0;
  virtual void do_all_to_all(Tensor out, Tensor inp) = 0;
  virtual void do_barrier() = 0;
  virtual std::unique_ptr<Comm> do_split(int color, int key) = 0;
  virtual Pending do_isend(Tensor data, int to) = 0;
  virtual Pending do_irecv(Tensor data, int from) = 0;

 private:
  void check_peer(int peer) const;
  void check_chunks(const Tensor& whole, const Tensor& chunk) const;
  void check_combines(const Tensor& data, Combine combine) const;

  int rank_, size_;
  Patience patience_;
  Ctx device_;  ///< only its device is set
  CommStatistics statistics_;
  const Call* current_ = nullptr;
};

/// The texts of all ranks by rank, on rank 0; on the others nothing. All ranks call it.
std::vector<std::string> gather_text(Comm& comm, std::string text);

}  // namespace ladder
