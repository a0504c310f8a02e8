// MpiComm: ranks that are processes, on one machine or many. This is the way to clusters.
//
// All collectives are MPI's non-blocking ones, waited for by wait(). Tensors of a device travel by
// way of a copy in host memory.
#include <array>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/chunks.h"
#include "common/comm/elements.h"
#include "common/comm/failure.h"
#include "common/comm/mpi_handles.h"
#include "common/comm/patience.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

using mpi::check;
using mpi::count;
using mpi::datatype;

/// What all communicators of a process share.
struct Process {
  Patience patience;
  std::atomic<bool> abandoned = false;  ///< by Comm::abandon()
};

/// Waits without spinning, as MPI_Wait does: the core belongs to the kernels.
/// @param whom "rank 1 in recv of 5 F32 (from 1)", if it waits too long
/// @throws Aborted if the rank gives up
template <class Whom>
MPI_Status wait_for(MPI_Request& request, const Process& process, Whom&& whom) {
  for (Polling polling(process.patience);; polling.pause(whom)) {
    int done = 0;
    MPI_Status status{};
    check(MPI_Test(&request, &done, &status), "MPI_Test");
    if (done) return status;
    if (process.abandoned) throw Aborted("this rank has failed");
  }
}

/// A tensor on its way from one rank to another.
class Message : public Pending::Work {
 public:
  /// @param call   a Send or Recv
  /// @param within the call that it is a message of: itself, or a collective
  /// @param peer   the other rank, as all ranks are numbered
  Message(const Call& call, const Call& within, HostCopy data, int peer, MPI_Comm comm,
          std::shared_ptr<const Process> process)
      : call_(call),
        within_(within),
        data_(std::move(data)),
        peer_(peer),
        process_(std::move(process)) {
    const Tensor x = data_.tensor();
    const auto start = [&](auto function, const char* name) {
      check(function(x.ptr, count(x), datatype(x.dtype), call.root, /*tag=*/0, comm, &request_),
            name);
    };
    sends() ? start(MPI_Isend, "MPI_Isend") : start(MPI_Irecv, "MPI_Irecv");
  }
  /// Without wait(), nothing may arrive any more. A message sent cannot be taken back, but then the
  /// rank is about to end all processes.
  ~Message() override {
    if (sends() || request_ == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request_);
    MPI_Request_free(&request_);
  }
  void wait() override {
    const MPI_Status status = wait_for(request_, *process_, [&] {
      return fmt::format("{} in {}", ranks_text({peer_}), to_string(within_));
    });
    if (sends()) return;
    check_size(status);
    data_.send();
  }

 private:
  bool sends() const { return call_.operation == Operation::Send; }
  void check_size(const MPI_Status& status) const {
    int arrived = 0;
    check(MPI_Get_count(&status, datatype(call_.payload.dtype), &arrived), "MPI_Get_count");
    CHECK(arrived == call_.payload.size(), "the ranks disagree: {} elements arrived in {}", arrived,
          to_string(call_));
  }

  Call call_, within_;
  HostCopy data_;
  int peer_;
  std::shared_ptr<const Process> process_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiComm : public Comm {
 public:
  MpiComm(std::unique_ptr<mpi::Group> group, std::shared_ptr<Process> process)
      : Comm(group->rank(), group->size(), process->patience),
        group_(std::move(group)),
        process_(std::move(process)),
        in_world_(group_->ranks_in_world()) {}
  std::string_view kind() const override { return "mpi"; }
  void abandon() noexcept override { process_->abandoned = true; }
  /// Returns when no rank needs another one any more.
  void end();

 private:
  /// Starts a collective of MPI with these arguments, and waits for its end.
  template <class Function, class... Args>
  void run(Function function, const char* name, Args... args) const;
  /// "ranks 0, 2": the others of this group.
  std::string others() const;
  Pending begin(Operation operation, HostCopy data, int peer);

  void do_all_reduce(Tensor data, Combine combine) override;
  void do_reduce_scatter(Tensor out, Tensor inp) override;
  void do_all_gather(Tensor out, Tensor inp) override;
  void do_broadcast(Tensor data, int root) override;
  void do_all_to_all(Tensor out, Tensor inp) override;
  void do_barrier() override;
  std::unique_ptr<Comm> do_split(int color, int key) override;
  Pending do_isend(Tensor data, int to) override;
  Pending do_irecv(Tensor data, int from) override;

  std::unique_ptr<mpi::Group> group_;
  std::shared_ptr<Process> process_;
  std::vector<int> in_world_;  ///< by rank: its number among all
};

template <class Function, class... Args>
void MpiComm::run(Function function, const char* name, Args... args) const {
  MPI_Request request;
  check(function(args..., group_->get(), &request), name);
  wait_for(request, *process_, [&] { return others() + " in " + to_string(*current()); });
}

std::string MpiComm::others() const {
  std::vector<int> ranks = in_world_;
  ranks.erase(ranks.begin() + rank());
  return ranks_text(ranks);
}

void MpiComm::end() {
  MPI_Request request;
  check(MPI_Ibarrier(group_->get(), &request), "MPI_Ibarrier");
  wait_for(request, *process_, [&] { return others() + " in the end of the run"; });
}

void MpiComm::do_all_reduce(Tensor data, Combine combine) {
  const mpi::Op op(data.dtype, combine);
  const HostCopy host = HostCopy::of(device_ctx(), data);
  run(MPI_Iallreduce, "MPI_Iallreduce", MPI_IN_PLACE, host.tensor().ptr, count(data),
      datatype(data.dtype), op.get());
  host.send();
}

void MpiComm::do_reduce_scatter(Tensor out, Tensor inp) {
  const mpi::Op op(out.dtype, Combine::Sum);
  // MPI's "in place" means something else (it writes chunk 0). So the output goes elsewhere first.
  const auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(out.bytes()));
  const Tensor chunk{.ptr = bytes.get(), .dtype = out.dtype, .shape = out.shape};
  const HostCopy host = HostCopy::of(device_ctx(), inp);
  run(MPI_Ireduce_scatter_block, "MPI_Ireduce_scatter_block", host.tensor().ptr, chunk.ptr,
      count(out), datatype(out.dtype), op.get());
  copy_elements(out, chunk, device());
}

void MpiComm::do_all_gather(Tensor out, Tensor inp) {
  const HostCopy mine = HostCopy::of(device_ctx(), inp);
  const HostCopy all = HostCopy::to_write(device_ctx(), out);
  const Tensor chunk = Chunks{out.size(), size()}.of(flat(all.tensor()), rank());
  const bool in_place = chunk.ptr == mine.tensor().ptr;
  run(MPI_Iallgather, "MPI_Iallgather", in_place ? MPI_IN_PLACE : mine.tensor().ptr, count(inp),
      datatype(inp.dtype), all.tensor().ptr, count(inp), datatype(out.dtype));
  all.send();
}

void MpiComm::do_broadcast(Tensor data, int root) {
  const HostCopy host =
      rank() == root ? HostCopy::of(device_ctx(), data) : HostCopy::to_write(device_ctx(), data);
  run(MPI_Ibcast, "MPI_Ibcast", host.tensor().ptr, count(data), datatype(data.dtype), root);
  if (rank() != root) host.send();
}

void MpiComm::do_all_to_all(Tensor out, Tensor inp) {
  const int chunk = count(inp) / size();
  const HostCopy from = HostCopy::of(device_ctx(), inp);
  const HostCopy to = HostCopy::to_write(device_ctx(), out);
  run(MPI_Ialltoall, "MPI_Ialltoall", from.tensor().ptr, chunk, datatype(inp.dtype),
      to.tensor().ptr, chunk, datatype(out.dtype));
  to.send();
}

void MpiComm::do_barrier() { run(MPI_Ibarrier, "MPI_Ibarrier"); }

std::unique_ptr<Comm> MpiComm::do_split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  const std::jthread deadline = end_unless_done(patience(), others() + " in split");
  check(MPI_Comm_split(group_->get(), color, key, &part), "MPI_Comm_split");
  return std::make_unique<MpiComm>(std::make_unique<mpi::Group>(part), process_);
}

Pending MpiComm::begin(Operation operation, HostCopy data, int peer) {
  const Call call{.operation = operation, .payload = data.tensor(), .root = peer};
  return Pending(std::make_unique<Message>(call, *current(), std::move(data),
                                           in_world_[static_cast<size_t>(peer)], group_->get(),
                                           process_));
}

Pending MpiComm::do_isend(Tensor data, int to) {
  return begin(Operation::Send, HostCopy::of(device_ctx(), data), to);
}

Pending MpiComm::do_irecv(Tensor data, int from) {
  return begin(Operation::Recv, HostCopy::to_write(device_ctx(), data), from);
}

constexpr const char* kUnheard =
    "other ranks, which have not been heard through MPI: does the network that it has chosen lead "
    "to them? With Open MPI `mpirun --mca btl_tcp_if_include` chooses (docs/cluster.md)";

/// @throws UserError if the launcher and MPI disagree about the number of ranks. The launcher then
/// belongs to another MPI, and each process would run alone
void check_launch() {
  int ranks = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  if (launched_processes() == 1 || launched_processes() == ranks) return;
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  check(MPI_Get_library_version(version.data(), &length), "MPI_Get_library_version");
  const std::string_view all(version.data());
  throw UserError(
      "{} processes were started, but MPI has {} here: was this program built with another MPI "
      "than the launcher's? Legal is the mpirun, or the --mpi of srun, that knows {}",
      launched_processes(), ranks, all.substr(0, all.find_first_of(",\n")));
}

/// Which rank of its machine this process is, and of how many.
Neighbors ranks_here() {
  MPI_Comm here = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &here),
        "MPI_Comm_split_type");
  const mpi::Group group(here);
  return {.rank = group.rank(), .ranks = group.size()};
}

}  // namespace

void run_mpi(int ranks, const RankBody& body, std::chrono::milliseconds timeout) {
  const Patience patience = Patience::of(timeout);
  const mpi::Session session(patience);
  int rank = launched_rank();
  try {
    check_launch();
    std::jthread until_all_are_heard = end_unless_done(patience, kUnheard);
    auto group = std::make_unique<mpi::Group>(mpi::Group::copy_of_world());
    rank = group->rank();
    set_neighbors(ranks_here());
    const auto process = std::make_shared<Process>(patience);
    until_all_are_heard = {};
    MpiComm comm(std::move(group), process);
    if (ranks != 1 && ranks != comm.size())
      throw UserError("--ranks {}, but mpirun has started {}; legal: {}, or no --ranks", ranks,
                      comm.size(), comm.size());
    body(comm);
    comm.end();
  } catch (const TimedOut&) {
    tell(failure(rank).line);
    // Others that have waited as long say so, too. Who says nothing is who does not come.
    std::this_thread::sleep_for(2 * patience.between);
    mpi::end_processes(1);
  } catch (...) {
    const Failure end = failure(rank);
    wait_for_turn(patience.turn() * rank);  // all may miss the same file
    tell(end.line);
    mpi::end_processes(end.status);
  }
}

}  // namespace ladder
