// MpiComm: ranks that are processes, on one machine or many. This is the way to clusters.
//
// All collectives are MPI's non-blocking ones, waited for by wait(). Tensors of a device travel by
// way of a copy in host memory. Between machines, messages and broadcasts travel in pieces. MPI's
// own sums and gathers, for --reduction native, do not.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "common/comm/chunks.h"
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

class Message;

/// What all communicators of a process share.
struct Process {
  std::atomic<bool> abandoned = false;  ///< by Comm::abandon()
  bool checks_calls = false;            ///< ranks compare what they call, before they do it
  int machine = 0;                      ///< the first rank of the machine that it runs on

  /// Lets all messages go on. Called again and again while a thread of this process waits.
  void advance();

  std::mutex mutex;  ///< protects the messages, and the list of them
  std::vector<Message*> messages;
};

/// Waits without spinning, as MPI_Wait does: the core belongs to the kernels.
/// @param left how much is not done yet; 0 ends the wait
/// @param call that it belongs to, for messages
/// @throws Aborted if the rank gives up
void wait_for(const std::function<int64_t()>& left, Process& process, const Call& call) {
  Polling polling(call);
  for (int64_t before = std::numeric_limits<int64_t>::max();;) {
    process.advance();
    const int64_t now = left();
    if (now == 0) return;
    if (process.abandoned) throw Aborted("this rank has failed");
    if (now < before) polling.begin_anew();
    before = now;
    polling.pause();
  }
}

/// How a tensor is cut, by both sides alike. `far` is between machines: there a sign of life
/// (mpi_watch.h) must get through, and would wait behind a whole message on a slow link.
Chunks pieces_of(const Tensor& data, bool far) {
  constexpr int64_t kBytes = 1 << 18;
  const int64_t pieces = far ? ceil_div(data.bytes(), kBytes) : 1;
  return {.elements = data.size(), .count = std::max<int64_t>(1, pieces)};
}

/// A tensor on its way from one rank to another.
class Message : public Pending::Work {
 public:
  /// @param call   a Send or Recv
  /// @param within the call that it is a message of: itself, or a collective
  /// @param tag    tells its pieces from those of other messages between the two ranks
  Message(const Call& call, const Call& within, HostCopy data, MPI_Comm comm, int tag, bool far,
          std::shared_ptr<Process> process)
      : call_(call),
        within_(within),
        data_(std::move(data)),
        comm_(comm),
        tag_(tag),
        process_(std::move(process)),
        pieces_(pieces_of(data_.tensor(), far)) {
    const std::lock_guard lock(process_->mutex);
    advance();
    process_->messages.push_back(this);
  }
  /// Without wait(), nothing may arrive any more. A message sent cannot be taken back, but then the
  /// rank is about to end all processes.
  ~Message() override {
    const std::lock_guard lock(process_->mutex);
    std::erase(process_->messages, this);
    if (sends()) return;
    for (MPI_Request& request : requests_) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
  void wait() override {
    const auto left = [this] {
      const std::lock_guard lock(process_->mutex);
      return pieces_.count - done_;
    };
    wait_for(left, *process_, within_);
    if (!sends()) data_.send();
  }
  /// Notices which pieces are done, and begins the next ones. Its caller holds the mutex.
  void advance() {
    while (done_ < pieces_.count) {
      while (begun_ < std::min(pieces_.count, done_ + kAtOnce)) begin(begun_++);
      int ended = 0;
      MPI_Status status{};
      check(MPI_Test(&request(done_), &ended, &status), "MPI_Test");
      if (!ended) return;
      if (!sends()) check_size(status);
      ++done_;
    }
  }

 private:
  MPI_Request& request(int64_t piece) { return requests_[static_cast<size_t>(piece % kAtOnce)]; }
  bool sends() const { return call_.operation == Operation::Send; }
  void begin(int64_t piece) {
    const Tensor x = pieces_.of(flat(data_.tensor()), piece);
    const auto start = [&](auto function, const char* name) {
      check(function(x.ptr, count(x), datatype(x.dtype), call_.root, tag_, comm_, &request(piece)),
            name);
    };
    sends() ? start(MPI_Isend, "MPI_Isend") : start(MPI_Irecv, "MPI_Irecv");
  }
  void check_size(const MPI_Status& status) const {
    int arrived = 0;
    check(MPI_Get_count(&status, datatype(call_.payload.dtype), &arrived), "MPI_Get_count");
    CHECK(arrived == pieces_[done_].size(), "the ranks disagree: {} elements arrived in {}",
          pieces_[done_].begin + arrived, to_string(call_));
  }

  static constexpr int64_t kAtOnce = 2;  ///< one is on the wire while the ranks agree on the next
  Call call_, within_;
  HostCopy data_;
  MPI_Comm comm_;
  int tag_;
  std::shared_ptr<Process> process_;
  Chunks pieces_;
  int64_t begun_ = 0, done_ = 0;  ///< pieces
  std::array<MPI_Request, kAtOnce> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

void Process::advance() {
  const std::lock_guard lock(mutex);
  for (Message* message : messages) message->advance();
}

class MpiComm : public Comm {
 public:
  MpiComm(std::unique_ptr<mpi::Group> group, std::shared_ptr<Process> process)
      : Comm(group->rank(), group->size()),
        group_(std::move(group)),
        process_(std::move(process)),
        machines_(static_cast<size_t>(size())),
        sent_(machines_.size()),
        received_(machines_.size()) {
    const Waiting waiting("the start of a group");
    check(
        MPI_Allgather(&process_->machine, 1, MPI_INT, machines_.data(), 1, MPI_INT, group_->get()),
        "MPI_Allgather");
  }
  std::string_view kind() const override { return "mpi"; }
  void abandon() noexcept override { process_->abandoned = true; }

 protected:
  void perform(const Call& call, const std::function<void()>& body) override {
    if (process_->checks_calls) compare(call);
    body();
  }

 private:
  void compare(const Call& call);
  void wait(MPI_Request request);
  Pending begin(Operation operation, HostCopy data, int peer, std::vector<int>& before);

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
  std::vector<int> machines_;         ///< by rank, as Process::machine
  std::vector<int> sent_, received_;  ///< by rank: how many messages
};

void MpiComm::wait(MPI_Request request) {
  const auto left = [&] {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done ? 0 : 1;
  };
  wait_for(left, *process_, *current());
}

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

// It may be all weights. A piece starts when this rank has done its part in the last one.
void MpiComm::do_broadcast(Tensor data, int root) {
  const HostCopy host =
      rank() == root ? HostCopy::of(device_ctx(), data) : HostCopy::to_write(device_ctx(), data);
  const Chunks pieces = pieces_of(data, std::ranges::count(machines_, machines_[0]) < size());
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

/// @param before by rank: how many messages have gone there, or come from there
Pending MpiComm::begin(Operation operation, HostCopy data, int peer, std::vector<int>& before) {
  constexpr int kTags = 1 << 15;  // every MPI has as many
  const Call call{.operation = operation, .payload = data.tensor(), .root = peer};
  const auto at = static_cast<size_t>(peer);
  const int tag = std::exchange(before[at], (before[at] + 1) % kTags);
  return Pending(std::make_unique<Message>(call, *current(), std::move(data), group_->get(), tag,
                                           machines_[at] != process_->machine, process_));
}

Pending MpiComm::do_isend(Tensor data, int to) {
  return begin(Operation::Send, HostCopy::of(device_ctx(), data), to, sent_);
}

Pending MpiComm::do_irecv(Tensor data, int from) {
  return begin(Operation::Recv, HostCopy::to_write(device_ctx(), data), from, received_);
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
/// @param first becomes the first rank of the machine
Neighbors ranks_here(int& first) {
  MPI_Comm here = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &here),
        "MPI_Comm_split_type");
  const mpi::Group group(here);
  check(MPI_Bcast(&first, 1, MPI_INT, /*root=*/0, group.get()), "MPI_Bcast");
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
    process->machine = rank;
    set_neighbors(ranks_here(process->machine));
    watch = std::make_unique<mpi::Watch>(patience, std::move(until_all_are_heard),
                                         [process] { process->advance(); });
    process->checks_calls = check_calls(*group);
    MpiComm comm(std::move(group), process);
    if (ranks != 1 && ranks != comm.size())
      throw UserError("--ranks {}, but mpirun has started {}; legal: {}, or no --ranks", ranks,
                      comm.size(), comm.size());
    body(comm);
    watch->end();
  } catch (...) {
    if (watch) watch->stop();
    const Failure end = failure(rank);
    wait_for_turn(patience.turn() * rank);  // all may miss the same file
    mpi::end_processes(end);
  }
}

}  // namespace ladder
