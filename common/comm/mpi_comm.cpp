// MpiComm: ranks that are processes, on one machine or many. This is the way to clusters.
//
// All collectives are MPI's non-blocking ones, waited for by wait(). Tensors of a device travel by
// way of a copy in host memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/comm/elements.h"
#include "common/comm/failure.h"
#include "common/comm/mpi_handles.h"
#include "common/comm/mpi_watch.h"
#include "common/comm/run_ranks.h"
#include "common/comm/waiting.h"
#include "common/error.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

/// Whether ranks compare their calls before they make them, which costs one message per call. If
/// one rank has it set in its environment, all ranks do it.
bool check_calls(const mpi::Group& group) {
  const char* const set = std::getenv("LADDER_CHECK_CALLS");
  int checks = set && std::string_view(set) == "1" ? 1 : 0;
  const Waiting waiting("the first all_reduce");
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &checks, 1, MPI_INT, MPI_MAX, group.get()),
             "MPI_Allreduce");
  return checks == 1;
}

using mpi::check;
using mpi::count;
using mpi::datatype;

/// What all communicators of a process share.
struct Process {
  std::atomic<bool> abandoned = false;  ///< by Comm::abandon()
  bool checks_calls = false;            ///< ranks compare what they call, before they do it
};

/// Waits for a request without spinning, as MPI_Wait does: the core belongs to the kernels.
/// @param call that it belongs to, for messages
/// @throws Aborted if the rank gives up
void wait_for(MPI_Request& request, MPI_Status* status, const Process& process, const Call& call) {
  Polling polling(call);
  while (true) {
    int done = 0;
    check(MPI_Test(&request, &done, status), "MPI_Test");
    if (done) return;
    if (process.abandoned) throw Aborted("this rank has failed");
    polling.pause();
  }
}

/// A tensor on its way from one rank to another.
class Message : public Pending::Work {
 public:
  /// @param call   a Send or Recv
  /// @param within the call that it is a message of: itself, or a collective
  Message(const Call& call, const Call& within, HostCopy data, MPI_Comm comm,
          std::shared_ptr<Process> process)
      : call_(call), within_(within), data_(std::move(data)), process_(std::move(process)) {
    const Tensor& x = data_.tensor();
    if (sends())
      check(MPI_Isend(x.ptr, count(x), datatype(x.dtype), call.root, /*tag=*/0, comm, &request_),
            "MPI_Isend");
    else
      check(MPI_Irecv(x.ptr, count(x), datatype(x.dtype), call.root, /*tag=*/0, comm, &request_),
            "MPI_Irecv");
  }
  /// Without wait(), nothing may arrive any more. A message sent cannot be taken back, but then the
  /// rank is about to end all processes.
  ~Message() override {
    if (sends() || request_ == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request_);
    MPI_Request_free(&request_);
  }
  void wait() override {
    MPI_Status status{};
    wait_for(request_, &status, *process_, within_);
    if (sends()) return;
    int arrived = 0;
    check(MPI_Get_count(&status, datatype(call_.payload.dtype), &arrived), "MPI_Get_count");
    CHECK(arrived == call_.payload.size(), "the ranks disagree: {} elements arrived in {}", arrived,
          to_string(call_));
    data_.send();
  }

 private:
  bool sends() const { return call_.operation == Operation::Send; }

  Call call_, within_;
  HostCopy data_;
  std::shared_ptr<Process> process_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiComm : public Comm {
 public:
  MpiComm(std::unique_ptr<mpi::Group> group, std::shared_ptr<Process> process)
      : Comm(group->rank(), group->size()),
        group_(std::move(group)),
        process_(std::move(process)) {}
  std::string_view kind() const override { return "mpi"; }
  void abandon() noexcept override { process_->abandoned = true; }

 protected:
  void perform(const Call& call, const std::function<void()>& body) override {
    if (process_->checks_calls) compare(call);
    body();
  }

 private:
  void compare(const Call& call);
  void wait(MPI_Request request) { wait_for(request, MPI_STATUS_IGNORE, *process_, *current()); }
  Pending begin(Operation operation, HostCopy data, int peer);

  void do_all_reduce(Tensor data, Combine combine) override;
  void do_reduce_scatter(Tensor out, Tensor inp, Combine combine) override;
  void do_all_gather(Tensor out, Tensor inp) override;
  void do_broadcast(Tensor data, int root) override;
  void do_all_to_all(Tensor out, Tensor inp) override;
  void do_barrier() override;
  std::unique_ptr<Comm> do_split(int color, int key) override;
  Pending do_isend(Tensor data, int to) override;
  Pending do_irecv(Tensor data, int from) override;

  std::unique_ptr<mpi::Group> group_;
  std::shared_ptr<Process> process_;
};

void MpiComm::compare(const Call& call) {
  using Text = std::array<char, 128>;
  Text mine{};
  to_string(call).copy(mine.data(), mine.size() - 1);
  std::vector<Text> all(static_cast<size_t>(size()));
  MPI_Request request;
  const int length = static_cast<int>(mine.size());
  check(MPI_Iallgather(mine.data(), length, MPI_CHAR, all.data(), length, MPI_CHAR, group_->get(),
                       &request),
        "MPI_Iallgather");
  wait(request);
  for (const Text& other : all)
    CHECK(other == all[0], "the ranks disagree: rank 0 in {}, rank {} in {}", all[0].data(),
          &other - all.data(), other.data());
}

void MpiComm::do_all_reduce(Tensor data, Combine combine) {
  const mpi::Op op(data.dtype, combine);
  const HostCopy host = HostCopy::of(device_ctx(), data);
  MPI_Request request;
  check(MPI_Iallreduce(MPI_IN_PLACE, host.tensor().ptr, count(data), datatype(data.dtype), op.get(),
                       group_->get(), &request),
        "MPI_Iallreduce");
  wait(request);
  host.send();
}

void MpiComm::do_reduce_scatter(Tensor out, Tensor inp, Combine combine) {
  const mpi::Op op(out.dtype, combine);
  // MPI's "in place" means something else (it writes chunk 0). So the output goes elsewhere first.
  const auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(out.bytes()));
  const Tensor chunk{.ptr = bytes.get(), .dtype = out.dtype, .shape = out.shape};
  const HostCopy host = HostCopy::of(device_ctx(), inp);
  MPI_Request request;
  check(MPI_Ireduce_scatter_block(host.tensor().ptr, chunk.ptr, count(out), datatype(out.dtype),
                                  op.get(), group_->get(), &request),
        "MPI_Ireduce_scatter_block");
  wait(request);
  copy_elements(out, chunk, device());
}

void MpiComm::do_all_gather(Tensor out, Tensor inp) {
  const HostCopy mine = HostCopy::of(device_ctx(), inp);
  const HostCopy all = HostCopy::to_write(device_ctx(), out);
  const Tensor chunk = Chunks{out.size(), size()}.of(flat(all.tensor()), rank());
  const bool in_place = chunk.ptr == mine.tensor().ptr;
  MPI_Request request;
  check(MPI_Iallgather(in_place ? MPI_IN_PLACE : mine.tensor().ptr, count(inp), datatype(inp.dtype),
                       all.tensor().ptr, count(inp), datatype(out.dtype), group_->get(), &request),
        "MPI_Iallgather");
  wait(request);
  all.send();
}

void MpiComm::do_broadcast(Tensor data, int root) {
  const HostCopy host =
      rank() == root ? HostCopy::of(device_ctx(), data) : HostCopy::to_write(device_ctx(), data);
  MPI_Request request;
  check(MPI_Ibcast(host.tensor().ptr, count(data), datatype(data.dtype), root, group_->get(),
                   &request),
        "MPI_Ibcast");
  wait(request);
  if (rank() != root) host.send();
}

void MpiComm::do_all_to_all(Tensor out, Tensor inp) {
  const int chunk = count(inp) / size();
  const HostCopy from = HostCopy::of(device_ctx(), inp);
  const HostCopy to = HostCopy::to_write(device_ctx(), out);
  MPI_Request request;
  check(MPI_Ialltoall(from.tensor().ptr, chunk, datatype(inp.dtype), to.tensor().ptr, chunk,
                      datatype(out.dtype), group_->get(), &request),
        "MPI_Ialltoall");
  wait(request);
  to.send();
}

void MpiComm::do_barrier() {
  MPI_Request request;
  check(MPI_Ibarrier(group_->get(), &request), "MPI_Ibarrier");
  wait(request);
}

std::unique_ptr<Comm> MpiComm::do_split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  const Waiting waiting("split");
  check(MPI_Comm_split(group_->get(), color, key, &part), "MPI_Comm_split");
  return std::make_unique<MpiComm>(std::make_unique<mpi::Group>(part), process_);
}

Pending MpiComm::begin(Operation operation, HostCopy data, int peer) {
  const Call call{.operation = operation, .payload = data.tensor(), .root = peer};
  return Pending(
      std::make_unique<Message>(call, *current(), std::move(data), group_->get(), process_));
}

Pending MpiComm::do_isend(Tensor data, int to) {
  return begin(Operation::Send, HostCopy::of(device_ctx(), data), to);
}

Pending MpiComm::do_irecv(Tensor data, int from) {
  return begin(Operation::Recv, HostCopy::to_write(device_ctx(), data), from);
}

constexpr std::string_view kUnheard =
    "other ranks have not been heard through MPI: does the network that it has chosen lead to "
    "them? With Open MPI `mpirun --mca btl_tcp_if_include` chooses (docs/cluster.md)";

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
  std::unique_ptr<mpi::Watch> watch;
  try {
    check_launch();
    std::jthread until_all_are_heard = mpi::end_unless_done(patience, kUnheard);
    const auto process = std::make_shared<Process>();
    auto group = std::make_unique<mpi::Group>(mpi::Group::copy_of_world());
    rank = group->rank();
    set_neighbors(ranks_here());
    watch = std::make_unique<mpi::Watch>(patience, std::move(until_all_are_heard));
    process->checks_calls = check_calls(*group);
    MpiComm comm(std::move(group), process);
    if (ranks != 1 && ranks != comm.size())
      throw UserError("--ranks {}, but mpirun has started {}; legal: {}, or no --ranks", ranks,
                      comm.size(), comm.size());
    body(comm);
    watch->end();
  } catch (...) {
    if (watch) watch->stop();
    const Failure end = failure(rank_name(rank) + ": ");
    wait_for_turn(rank);  // all may miss the same file
    mpi::end_processes(end);
  }
}

}  // namespace ladder
