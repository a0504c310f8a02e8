#include "common/comm/mpi_message.h"

#include "common/comm/waiting.h"

namespace ladder::mpi {

Chunks pieces_of(const Tensor& data, bool between_machines) {
  constexpr int64_t kBytes = 1 << 18;
  const int64_t pieces = between_machines ? ceil_div(data.bytes(), kBytes) : 1;
  return {.elements = data.size(), .count = std::max<int64_t>(1, pieces)};
}

void Process::advance() {
  const std::lock_guard lock(mutex);
  for (Message* message : messages) message->advance();
}

Message::Message(const Call& call, const Call& within, HostCopy data, MPI_Comm comm, int tag,
                 bool between_machines, std::shared_ptr<Process> process)
    : call_(call),
      within_(within),
      data_(std::move(data)),
      comm_(comm),
      tag_(tag),
      process_(std::move(process)),
      pieces_(pieces_of(data_.tensor(), between_machines)) {
  requests_.fill(MPI_REQUEST_NULL);
  const std::lock_guard lock(process_->mutex);
  advance();
  process_->messages.push_back(this);
}

Message::~Message() {
  const std::lock_guard lock(process_->mutex);
  std::erase(process_->messages, this);
  if (sends()) return;
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

void Message::wait() {
  Polling polling(within_);
  for (int64_t before = 0;;) {
    process_->advance();
    int64_t now = 0;
    {
      const std::lock_guard lock(process_->mutex);
      now = done_;
    }
    if (now == pieces_.count) break;
    if (process_->abandoned) throw Aborted("this rank has failed");
    if (now > before) polling.begin_anew();
    before = now;
    polling.pause();
  }
  if (!sends()) data_.send();
}

void Message::advance() {
  for (bool moves = true; moves;) {
    moves = begun_ < pieces_.count && begun_ < done_ + kAtOnce;
    if (moves) begin(begun_++);
    int ended = 0;
    MPI_Status status{};
    if (done_ < begun_) check(MPI_Test(&request(done_), &ended, &status), "MPI_Test");
    if (!ended) continue;
    if (!sends()) check_size(done_, status);
    ++done_;
    moves = true;
  }
}

void Message::begin(int64_t piece) {
  const Tensor data = pieces_.of(flat(data_.tensor()), piece);
  if (sends())
    check(MPI_Isend(data.ptr, count(data), datatype(data.dtype), call_.root, tag_, comm_,
                    &request(piece)),
          "MPI_Isend");
  else
    check(MPI_Irecv(data.ptr, count(data), datatype(data.dtype), call_.root, tag_, comm_,
                    &request(piece)),
          "MPI_Irecv");
}

void Message::check_size(int64_t piece, const MPI_Status& status) const {
  int arrived = 0;
  check(MPI_Get_count(&status, datatype(call_.payload.dtype), &arrived), "MPI_Get_count");
  CHECK(arrived == pieces_[piece].size(), "the ranks disagree: {} elements arrived in {}",
        pieces_[piece].begin + arrived, to_string(call_));
}

void wait(MPI_Request& request, Process& process, const Call& call) {
  Polling polling(call);
  while (true) {
    process.advance();
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    if (process.abandoned) throw Aborted("this rank has failed");
    polling.pause();
  }
}

}  // namespace ladder::mpi
