#include "common/comm/nccl_comm.h"

#include <array>
#include <atomic>
#include <bit>
#include <exception>
#include <nccl.h>
#include <set>
#include <thread>
#include <utility>

#include "common/comm/patience.h"
#include "common/error.h"
#include "kernels/cuda/cuda_device.h"

namespace ladder {
namespace {

using cuda::check_cuda;
using cuda::CudaDevice;
using Event = cuda::Owner<cudaEvent_t, cudaEventDestroy>;
/// Comm::abandon() sets it, for a communicator and for those split from it.
using Abandoned = std::shared_ptr<std::atomic<bool>>;

/// @throws CheckError naming the call and NCCL's reason
void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw CheckError(
      fmt::format("{}: {}: {}", call, ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

/// Who is waited for in a call: NCCL does not say which of them.
std::string others_in(const Call& call) { return "other ranks in " + to_string(call); }

/// A communicator of the library. After an error, or while an exception unwinds, its peers may be
/// gone. Then it ends without waiting for them.
class Group {
 public:
  explicit Group(ncclComm_t comm) : comm_(comm) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (!comm_) return;
    if (std::uncaught_exceptions() > 0)
      ncclCommAbort(comm_);
    else
      ncclCommDestroy(comm_);
  }

  ncclComm_t get() const {
    if (!comm_) throw Aborted("NCCL has been aborted on this rank");
    return comm_;
  }
  /// Ends what is in progress, here and, after some time, on the peers.
  void abort() noexcept {
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  ncclComm_t comm_;
};

/// Work of the communication stream, up to an event after it.
class Queued : public Pending::Work {
 public:
  Queued(std::shared_ptr<Group> group, Abandoned abandoned, cudaStream_t stream, const Call& call,
         const Patience& patience)
      : group_(std::move(group)),
        abandoned_(std::move(abandoned)),
        call_(call),
        patience_(patience) {
    cudaEvent_t event = nullptr;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    done_.reset(event);
    CHECK_CUDA(cudaEventRecord(event, stream));
  }
  /// Without wait(): nothing may arrive any more.
  ~Queued() override {
    if (!waited_) group_->abort();
  }

  void wait() override {
    for (Polling polling(patience_);; polling.pause([&] { return others_in(call_); })) {
      const cudaError_t state = cudaEventQuery(done_.get());
      if (state == cudaSuccess) break;
      if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
      ncclResult_t error = ncclSuccess;
      check(ncclCommGetAsyncError(group_->get(), &error), "ncclCommGetAsyncError");
      if (error != ncclInProgress) check(error, "NCCL, under way");
      if (*abandoned_) throw Aborted("this rank has failed");
    }
    waited_ = true;
  }

 private:
  std::shared_ptr<Group> group_;
  Abandoned abandoned_;
  Call call_;  ///< the call that it is part of, for messages
  Patience patience_;
  Event done_;
  bool waited_ = false;
};

ncclDataType_t datatype(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return ncclFloat32;
    case Dtype::F64: return ncclFloat64;
    case Dtype::I32: return ncclInt32;
    case Dtype::I64: return ncclInt64;
    case Dtype::BF16: return ncclBfloat16;
    case Dtype::F16: return ncclFloat16;
    default: return ncclUint8;
  }
}

bool is_integer(Dtype dtype) {
  return dtype == Dtype::I32 || dtype == Dtype::I64 || dtype == Dtype::U8;
}

size_t count(const Tensor& x) { return static_cast<size_t>(x.size()); }

bool on_gpu(const Tensor& x) { return x.place == Place::Device; }

class NcclComm : public Comm {
 public:
  NcclComm(Comm& carrier, std::unique_ptr<Comm> owned, std::shared_ptr<Group> group,
           Abandoned abandoned)
      : Comm(carrier.rank(), carrier.size(), carrier.patience()),
        owned_(std::move(owned)),
        carrier_(carrier),
        group_(std::move(group)),
        abandoned_(std::move(abandoned)) {}

  std::string_view kind() const override { return "nccl"; }
  void attach(Device* device) override;
  /// The thread that waits does the abort, because an object of the library belongs to one thread.
  /// It waits in Queued::wait(), except at first contacts: those only --timeout ends.
  void abandon() noexcept override {
    *abandoned_ = true;
    carrier_.abandon();
  }
  Pending iexchange(Tensor out, int to, Tensor inp, int from) override;

 private:
  static bool sums(const Tensor& x, Combine combine) {
    return on_gpu(x) && (combine == Combine::Sum || is_integer(x.dtype));
  }
  /// Whom a call reaches, and how: the operation, the number of bits of its size (by size NCCL
  /// chooses an algorithm), and of a message the two other ranks.
  using Way = std::array<int, 4>;
  static Way way_of(const Call& call, int to = -1, int from = -1) {
    const int size = static_cast<int>(std::bit_width(static_cast<uint64_t>(call.payload.bytes())));
    return {static_cast<int>(call.operation), size, to, from};
  }
  /// Queues calls of NCCL for `call`. They take effect together.
  template <class F>
  Pending start(const Call& call, F&& calls) {
    return start(call, way_of(call), calls);
  }
  template <class F>
  Pending start(const Call& call, const Way& way, F&& calls);
  cudaStream_t stream() const { return gpu_->communication(); }
  void queue_send(Tensor out, int to) const;
  void queue_receive(Tensor inp, int from) const;

  void do_all_reduce(Tensor data, Combine combine) override;
  void do_reduce_scatter(Tensor out, Tensor inp) override;
  void do_all_gather(Tensor out, Tensor inp) override;
  void do_broadcast(Tensor data, int root) override;
  void do_all_to_all(Tensor out, Tensor inp) override;
  void do_barrier() override { carrier_.barrier(); }
  std::unique_ptr<Comm> do_split(int color, int key) override;
  Pending do_isend(Tensor data, int to) override { return carrier_.isend(data, to); }
  Pending do_irecv(Tensor data, int from) override { return carrier_.irecv(data, from); }

  std::unique_ptr<Comm> owned_;  ///< the carrier of a split; otherwise null
  Comm& carrier_;
  std::shared_ptr<Group> group_;  ///< operations in progress share it
  Abandoned abandoned_;
  CudaDevice* gpu_ = nullptr;
  std::set<Way> connected_;  ///< what has been called once: it blocks no more
};

void NcclComm::attach(Device* device) {
  gpu_ = dynamic_cast<CudaDevice*>(device);
  CHECK(gpu_ || !device, "{} attached to NCCL", device->name());
  Comm::attach(device);
  carrier_.attach(device);
}

template <class F>
Pending NcclComm::start(const Call& call, const Way& way, F&& calls) {
  const ncclComm_t comm = group_->get();
  std::jthread deadline;
  if (connected_.insert(way).second) deadline = end_unless_done(patience(), others_in(call));
  check(ncclGroupStart(), "ncclGroupStart");
  try {
    calls(comm);
  } catch (...) {
    ncclGroupEnd();  // otherwise later calls of this thread would wait in it
    throw;
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  return Pending(std::make_unique<Queued>(group_, abandoned_, stream(), call, patience()));
}

void NcclComm::do_all_reduce(Tensor data, Combine combine) {
  if (!sums(data, combine)) return carrier_.all_reduce(data, combine);
  start(*current(), [&](ncclComm_t comm) {
    check(ncclAllReduce(data.ptr, data.ptr, count(data), datatype(data.dtype),
                        combine == Combine::Sum ? ncclSum : ncclMax, comm, stream()),
          "ncclAllReduce");
  }).wait();
}

void NcclComm::do_reduce_scatter(Tensor out, Tensor inp) {
  if (!on_gpu(inp)) return carrier_.reduce_scatter(out, inp);
  start(*current(), [&](ncclComm_t comm) {
    check(ncclReduceScatter(inp.ptr, out.ptr, count(out), datatype(out.dtype), ncclSum, comm,
                            stream()),
          "ncclReduceScatter");
  }).wait();
}

void NcclComm::do_all_gather(Tensor out, Tensor inp) {
  if (!on_gpu(inp)) return carrier_.all_gather(out, inp);
  start(*current(), [&](ncclComm_t comm) {
    check(ncclAllGather(inp.ptr, out.ptr, count(inp), datatype(inp.dtype), comm, stream()),
          "ncclAllGather");
  }).wait();
}

void NcclComm::do_broadcast(Tensor data, int root) {
  if (!on_gpu(data)) return carrier_.broadcast(data, root);
  start(*current(), [&](ncclComm_t comm) {
    check(
        ncclBroadcast(data.ptr, data.ptr, count(data), datatype(data.dtype), root, comm, stream()),
        "ncclBroadcast");
  }).wait();
}

void NcclComm::do_all_to_all(Tensor out, Tensor inp) {
  if (!on_gpu(inp)) return carrier_.all_to_all(out, inp);
  if (inp.size() == 0) return;
  const Chunks chunks{inp.size(), size()};
  start(*current(), [&](ncclComm_t) {
    for (int peer = 0; peer < size(); ++peer) {
      queue_send(chunks.of(flat(inp), peer), peer);
      queue_receive(chunks.of(flat(out), peer), peer);
    }
  }).wait();
}

std::unique_ptr<Comm> NcclComm::do_split(int color, int key) {
  std::unique_ptr<Comm> carrier = carrier_.split(color, key);
  Comm& by_carrier = *carrier;
  ncclComm_t part = nullptr;
  const std::jthread deadline = end_unless_done(patience(), "other ranks in split");
  check(ncclCommSplit(group_->get(), color, key, &part, /*config=*/nullptr), "ncclCommSplit");
  return std::make_unique<NcclComm>(by_carrier, std::move(carrier), std::make_shared<Group>(part),
                                    abandoned_);
}

Pending NcclComm::iexchange(Tensor out, int to, Tensor inp, int from) {
  const bool sends = out && out.size() > 0, receives = inp && inp.size() > 0;
  if (!sends && !receives) return {};
  if (!on_gpu(sends ? out : inp)) return Comm::iexchange(out, to, inp, from);
  Call call;
  if (sends) call = message(Operation::Send, out, to);
  if (receives) call = message(Operation::Recv, inp, from);
  const Way way = way_of(call, sends ? to : -1, receives ? from : -1);
  return start(current() ? *current() : call, way, [&](ncclComm_t) {
    if (sends) queue_send(out, to);
    if (receives) queue_receive(inp, from);
  });
}

void NcclComm::queue_send(Tensor out, int to) const {
  check(ncclSend(out.ptr, count(out), datatype(out.dtype), to, group_->get(), stream()),
        "ncclSend");
}

void NcclComm::queue_receive(Tensor inp, int from) const {
  check(ncclRecv(inp.ptr, count(inp), datatype(inp.dtype), from, group_->get(), stream()),
        "ncclRecv");
}

/// The id of rank 0, sent by the carrier.
ncclUniqueId unique_id(Comm& carrier) {
  ncclUniqueId id{};
  if (carrier.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  carrier.broadcast({.ptr = id.internal, .dtype = Dtype::U8, .shape = {NCCL_UNIQUE_ID_BYTES}}, 0);
  return id;
}

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Comm> open_nccl(Comm& carrier, Device* device) {
  if (!dynamic_cast<CudaDevice*>(device))
    throw UserError("NCCL communicates between GPUs, and {}; legal with --backend cuda",
                    device ? device->name() + " is none" : "this rank has none");
  const ncclUniqueId id = unique_id(carrier);
  ncclComm_t comm = nullptr;
  const std::jthread deadline =
      end_unless_done(carrier.patience(), "other ranks in the first contact through NCCL");
  check(ncclCommInitRank(&comm, carrier.size(), id, carrier.rank()), "ncclCommInitRank");
  auto nccl = std::make_unique<NcclComm>(carrier, nullptr, std::make_shared<Group>(comm),
                                         std::make_shared<std::atomic<bool>>(false));
  nccl->attach(device);
  return nccl;
}

}  // namespace ladder
