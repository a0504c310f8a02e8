// Comm: a group of ranks that exchange tensors.
//
// Sizes and dtypes come from the tensors. All ranks of the group call the same operations in the
// same order, with equal sizes; a backend that can tell reports those that do not.
//
// Sums of floats are added here in whatever order the backend likes (the "reordered" tier); sums of
// integers and maxima have the same bits in any order. Sums in an order of our choice are written
// over messages in common/comm/reduction.h.
//
// Tensors lie in host memory, or on the device that attach() has named.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/chunks.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// Thrown out of communication that cannot end because another rank has failed.
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
    /// Without wait(), as an exception unwinds: lets go of the tensors.
    virtual ~Work() = default;
    virtual void wait() = 0;
  };

  /// Already done.
  Pending() = default;
  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}

  /// Blocks, without spinning, until the operation is done. Does nothing the second time.
  /// @throws what the operation threw
  void wait() {
    if (const std::unique_ptr<Work> work = std::move(work_)) work->wait();
  }

 private:
  std::unique_ptr<Work> work_;
};

/// One rank's end of a group. Used by one thread at a time; a thread that communicates beside it
/// gets a group of its own by split().
class Comm {
 public:
  Comm(int rank, int size) : rank_(rank), size_(size) {}
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// "self", "thread", "mpi", "nccl"
  virtual std::string_view kind() const = 0;

  /// This rank's tensors may lie on `device` from here on, also in groups that split() makes later;
  /// null: on none. A thread that communicates beside the rank's own has a group and a device of
  /// its own.
  ///
  /// Every operation on Place::Device or Shared first waits for all that is queued on the device.
  /// Once it has returned, or wait() has, its result is there for whatever is queued later.
  virtual void attach(Device* device) { device_.device = device; }
  Device* device() const { return device_.device; }

  // ---- collectives: every rank calls them ------------------------------------------------------
  /// In place: data = the sum or maximum over ranks. Any size. F32 F64 BF16 F16 I32 I64, Max also
  /// U8
  void all_reduce(Tensor data, Combine combine = Combine::Sum);

  /// out = chunk rank() of the sum or maximum. out may be that chunk of inp.
  /// inp (N n); out (n), dtypes as all_reduce. @throws CheckError if the chunks are not equal
  void reduce_scatter(Tensor out, Tensor inp, Combine combine = Combine::Sum);

  /// out = all ranks' inp, by rank. inp may be chunk rank() of out.
  /// out (N n); inp (n), any dtype. @throws CheckError if the chunks are not equal
  void all_gather(Tensor out, Tensor inp);

  /// data = data of `root`. Any size and dtype
  void broadcast(Tensor data, int root);

  /// Chunk i of out = chunk rank() of rank i's inp: a transpose.
  /// out, inp (N n), any dtype, not the same memory. @throws CheckError if the chunks are not equal
  void all_to_all(Tensor out, Tensor inp);

  /// Returns once every rank has called it.
  void barrier();

  /// Ranks of one color (from 0) form a new group, ordered by key, then by rank here. Every rank
  /// calls it. The new group's statistics start at zero.
  std::unique_ptr<Comm> split(int color, int key);

  // ---- messages: between two ranks, in the order in which they were sent -----------------------
  /// Returns once `data` may be changed; that may be when the other rank receives it.
  void send(Tensor data, int to) { isend(data, to).wait(); }
  void recv(Tensor data, int from) { irecv(data, from).wait(); }
  /// Of the same size and dtype on both sides. Messages to oneself are refused.
  Pending isend(Tensor data, int to);
  Pending irecv(Tensor data, int from);
  /// Sends and receives at once, so that two partners may both call it. A null or empty tensor
  /// does not travel.
  void exchange(Tensor out, int to, Tensor inp, int from) { iexchange(out, to, inp, from).wait(); }
  /// One that returns at once. What one rank sends in an exchange the other receives in one.
  virtual Pending iexchange(Tensor out, int to, Tensor inp, int from);

  // ---- collectives made of messages ------------------------------------------------------------
  /// Runs `messages` as one operation: its bytes are counted under `call`, and ranks that are in
  /// different calls are told apart.
  void collective(const Call& call, const std::function<void()>& messages);

  const CommStatistics& statistics() const { return statistics_; }

  /// Makes what waits in this communicator, in any thread of this rank, throw Aborted: the rank is
  /// about to fail, and must first join a thread that communicates.
  virtual void abandon() noexcept = 0;

 protected:
  /// What the rank is doing: a collective, or one message.
  const Call* current() const { return current_; }

  /// All collectives pass here; a test's communicator plants its faults in it.
  virtual void perform(const Call&, const std::function<void()>& body) { body(); }
  /// @throws CheckError if `data` lies on a device, and none is attached
  virtual void check_place(const Tensor& data) const;
  /// Checks and counts one message.
  Call message(Operation operation, Tensor data, int peer);
  /// Waits for what is queued on the device and may write or read these.
  void settle(const Tensor& data, const Tensor& other = {}) const;
  /// For HostCopy, of tensors that this backend cannot reach where they lie.
  const Ctx& device_ctx() const { return device_; }

  // Sizes have been checked.
  virtual void do_all_reduce(Tensor data, Combine combine) = 0;
  virtual void do_reduce_scatter(Tensor out, Tensor inp, Combine combine) = 0;
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
  Ctx device_;  ///< of which only the device is set
  CommStatistics statistics_;
  const Call* current_ = nullptr;
};

/// The texts of all ranks by rank, on rank 0; on the others nothing. All ranks call it.
std::vector<std::string> gather_text(Comm& comm, std::string text);

}  // namespace ladder
