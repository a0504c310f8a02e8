// MpiComm: ranks that are processes, on one machine or many. This is the way to clusters.
//
// Collectives are MPI's non-blocking ones, and mpi::wait() waits for them. A message or a broadcast
// that goes to another machine is sent in pieces (mpi_message.h). MPI's own sums and gathers, for
// --reduction native, are sent as MPI likes. Tensors of a device travel through a copy in host
// memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/comm/elements.h"
#include "common/comm/failure.h"
#include "common/comm/mpi_handles.h"
#include "common/comm/mpi_message.h"
#include "common/comm/mpi_watch.h"
#include "common/comm/rank_error.h"
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

class MpiComm : public Comm {
 public:
  MpiComm(std::unique_ptr<mpi::Group> group, std::shared_ptr<mpi::Process> process)
      : Comm(group->rank(), group->size()),
        group_(std::move(group)),
        process_(std::move(process)),
        elsewhere_(group_->not_in(process_->neighbors)),
        sent_(static_cast<size_t>(size())),
        received_(static_cast<size_t>(size())) {}
  std::string_view kind() const override { return "mpi"; }
  void abandon() noexcept override { process_->abandoned = true; }

 protected:
  void perform(const Call& call, const std::function<void()>& body) override {
    if (process_->checks_calls) compare(call);
    body();
  }

 private:
  void compare(const Call& call);
  void wait(MPI_Request request) { mpi::wait(request, *process_, *current()); }
  Pending begin(Operation operation, HostCopy data, int peer, int& before);

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
  std::shared_ptr<mpi::Process> process_;
  std::vector<bool> elsewhere_;       ///< by rank: whether it is on another machine
  std::vector<int> sent_, received_;  ///< how many messages, by rank
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

// All weights may be one broadcast. A piece starts when this rank has done its part in the piece
// before.
void MpiComm::do_broadcast(Tensor data, int root) {
  const HostCopy host =
      rank() == root ? HostCopy::of(device_ctx(), data) : HostCopy::to_write(device_ctx(), data);
  const bool between_machines = std::ranges::count(elsewhere_, true) > 0;
  const Chunks pieces = mpi::pieces_of(data, between_machines);
  for (int64_t i = 0; i < pieces.count; ++i) {
    const Tensor piece = pieces.of(flat(host.tensor()), i);
    MPI_Request request;
    check(MPI_Ibcast(piece.ptr, count(piece), datatype(piece.dtype), root, group_->get(), &request),
          "MPI_Ibcast");
    wait(request);
  }
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

/// @param before how many messages went this way to or from `peer` before
Pending MpiComm::begin(Operation operation, HostCopy data, int peer, int& before) {
  constexpr int kTags = 1 << 15;  // every MPI has so many
  const Call call{.operation = operation, .payload = data.tensor(), .root = peer};
  return Pending(std::make_unique<mpi::Message>(call, *current(), std::move(data), group_->get(),
                                                before++ % kTags,
                                                elsewhere_[static_cast<size_t>(peer)], process_));
}

Pending MpiComm::do_isend(Tensor data, int to) {
  return begin(Operation::Send, HostCopy::of(device_ctx(), data), to,
               sent_[static_cast<size_t>(to)]);
}

Pending MpiComm::do_irecv(Tensor data, int from) {
  return begin(Operation::Recv, HostCopy::to_write(device_ctx(), data), from,
               received_[static_cast<size_t>(from)]);
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

/// Prints the exception that is being handled, and ends all processes.
[[noreturn]] void end_all(int rank) {
  const Failure end = failure_of(rank);
  wait_for_turn(rank);  // all ranks may have met the same missing file
  mpi::end_processes(end);
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
    const auto process = std::make_shared<mpi::Process>();
    auto group = std::make_unique<mpi::Group>(mpi::Group::copy_of_world());
    rank = group->rank();
    set_neighbors({.rank = process->neighbors.rank(), .ranks = process->neighbors.size()});
    watch = std::make_unique<mpi::Watch>(patience, std::move(until_all_are_heard), process);
    process->checks_calls = check_calls(*group);
    MpiComm comm(std::move(group), process);
    if (ranks != 1 && ranks != comm.size())
      throw UserError("--ranks {}, but mpirun has started {}; legal: {}, or no --ranks", ranks,
                      comm.size(), comm.size());
    body(comm);
    watch->end();
  } catch (...) {
    if (watch) watch->stop();
    end_all(rank);
  }
}

}  // namespace ladder
