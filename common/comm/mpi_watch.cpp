#include "common/comm/mpi_watch.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "common/comm/failure.h"
#include "common/comm/run_ranks.h"
#include "common/comm/waiting.h"

namespace ladder::mpi {
namespace {

using Clock = std::chrono::steady_clock;

/// Also true if there is no request.
bool is_done(MPI_Request& request) {
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

constexpr int kBytes = sizeof(RankReport);

}  // namespace

Watch::Watch(const Patience& patience, std::jthread until_all_are_heard,
             std::function<void()> advance)
    : patience_(patience),
      until_all_are_heard_(std::move(until_all_are_heard)),
      advance_(std::move(advance)),
      reports_(static_cast<size_t>(group_.size())) {
  for (int rank = 0; rank < group_.size(); ++rank) {
    reports_[static_cast<size_t>(rank)].rank = rank;
    if (rank != rank_ && (rank == 0 || rank_ == 0)) peers_.push_back({.rank = rank});
  }
  RankReport& mine = reports_[static_cast<size_t>(rank_)];
  host_name().copy(mine.host.data(), mine.host.size() - 1);
  thread_ = std::jthread([this] { work(); });
}

void Watch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watch::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watch::work() {
  try {
    loop();
  } catch (...) {
    give_up(failure().line);
  }
}

void Watch::loop() {
  Clock::time_point next = Clock::now();
  for (int tries = 0;;) {
    bool over = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, next, [&] { return over_ || stopped_; });
      if (stopped_) return;
      over = over_;
    }
    advance_();
    for (Peer& peer : peers_) receive(peer);
    if (until_all_are_heard_.joinable() && std::ranges::all_of(peers_, &Peer::heard))
      until_all_are_heard_ = {};
    if (Clock::now() >= next) {
      look(over);
      for (Peer& peer : peers_) send(peer, /*last=*/false);
      next = Clock::now() + patience_.between;
    }
    if (!over) continue;
    if (part()) return;
    be_patient(tries++);
  }
}

void Watch::receive(Peer& peer) {
  RankReport& report = reports_[static_cast<size_t>(peer.rank)];
  while (!report.over) {
    if (peer.receiving == MPI_REQUEST_NULL)
      check(MPI_Irecv(&peer.arriving, kBytes, MPI_BYTE, peer.rank, /*tag=*/0, group_.get(),
                      &peer.receiving),
            "MPI_Irecv");
    if (!is_done(peer.receiving)) return;
    report = peer.arriving;
    peer.heard = true;
  }
}

// A stopped rank takes no messages. So no more are sent until it has taken the last one.
void Watch::send(Peer& peer, bool last) {
  if (peer.told_all || !is_done(peer.sending)) return;
  peer.leaving = reports_[static_cast<size_t>(rank_)];
  peer.leaving.over = peer.told_all = last;
  check(
      MPI_Isend(&peer.leaving, kBytes, MPI_BYTE, peer.rank, /*tag=*/0, group_.get(), &peer.sending),
      "MPI_Isend");
}

bool Watch::part() {
  const auto is_over = [&](const Peer& peer) {
    return reports_[static_cast<size_t>(peer.rank)].over;
  };
  // Rank 0 ends last: the others hear from it until then.
  const bool all_over = std::ranges::all_of(peers_, is_over);
  if (rank_ == 0 && !all_over) return false;
  for (Peer& peer : peers_) send(peer, /*last=*/true);
  return all_over && std::ranges::all_of(
                         peers_, [](Peer& peer) { return peer.told_all && is_done(peer.sending); });
}

void Watch::look(bool over) {
  for (Peer& peer : peers_) ++reports_[static_cast<size_t>(peer.rank)].unheard;
  RankReport& mine = reports_[static_cast<size_t>(rank_)];
  const LongestWait end{std::numeric_limits<int64_t>::max(), "the end of the run"};
  const std::optional<LongestWait> wait = over ? end : longest_wait();
  const int64_t before = std::exchange(wait_, wait ? wait->number : -1);
  mine.debugged = under_debugger();
  mine.waited = wait && !mine.debugged ? (wait_ == before ? mine.waited + 1 : 1) : 0;
  mine.silent = wait || pulse_.beats() ? 0 : mine.silent + 1;
  mine.set_call(wait ? wait->call : "");

  std::vector<RankReport> heard{mine};
  for (const Peer& peer : peers_) heard.push_back(reports_[static_cast<size_t>(peer.rank)]);
  std::ranges::sort(heard, {}, &RankReport::rank);
  if (const auto reason = reason_to_give_up(heard, group_.size(), patience_))
    give_up("error: " + *reason);
}

void Watch::give_up(const std::string& line) const {
  wait_for_turn(patience_.turn() * rank_);
  end_processes({line, 1});
}

}  // namespace ladder::mpi
