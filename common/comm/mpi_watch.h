// Watch: a thread beside each rank. It tells the other ranks whether its rank lives, and what its
// rank waits for. Without it, a rank that is stopped or stuck would let all others wait forever.
//
// Rank 0 hears of all ranks, and they of rank 0, at each look (common/comm/liveness.h). A rank
// lives if its process says so and it waits for other ranks, or its thread or a helper of it
// computes or waits for a file. So nobody gives up because of a long validation, or a checkpoint on
// a slow disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/liveness.h"
#include "common/comm/mpi_handles.h"

namespace ladder::mpi {

class Watch {
 public:
  /// Watches the calling thread. All ranks make one.
  /// @param until_all_are_heard a thread that ends once this rank has heard of all that tell it
  /// @param advance             called at each look: messages go on while their rank computes
  Watch(const Patience& patience, std::jthread until_all_are_heard, std::function<void()> advance);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { stop(); }

  /// This rank needs nothing more from the others. Returns when this holds for all ranks.
  void end();
  /// Stops looking, because the rank is about to end all processes. Until the Watch is destroyed,
  /// what others still send has a place to arrive.
  void stop();

 private:
  /// A rank that reports to this one, and that this one reports to.
  struct Peer {
    int rank;
    MPI_Request receiving = MPI_REQUEST_NULL, sending = MPI_REQUEST_NULL;
    RankReport arriving{}, leaving{};
    bool heard = false;     ///< at least one report has come
    bool told_all = false;  ///< `leaving` is the last report
  };

  void work();
  void loop();
  void receive(Peer& peer);
  void send(Peer& peer, bool last);
  void look(bool over);
  /// After end(): exchanges the last reports. Returns whether all were sent and all have come
  bool part();
  [[noreturn]] void give_up(const std::string& line) const;

  Group group_{Group::copy_of_world()};
  int rank_ = group_.rank();
  Patience patience_;
  std::jthread until_all_are_heard_;
  std::function<void()> advance_;
  Pulse pulse_;
  std::vector<RankReport> reports_;  ///< by rank; for the thread only, as the next two
  std::vector<Peer> peers_;          ///< rank 0; on rank 0 all other ranks
  int64_t wait_ = -1;                ///< which wait this rank was in at the last look

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false, stopped_ = false;
  std::jthread thread_;  ///< last, because it uses all of the above
};

}  // namespace ladder::mpi
