// Message: a tensor that MPI carries from one rank to another. Between machines it goes in pieces.
//
// Few pieces are in progress at a time. So other messages, such as a sign of life (mpi_watch.h),
// get through on a slow link, and a rank that waits for gigabytes sees that they arrive.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <vector>

#include "common/comm/chunks.h"
#include "common/comm/comm.h"
#include "common/comm/mpi_handles.h"
#include "kernels/transfer.h"

namespace ladder::mpi {

/// How a message is cut: between machines into pieces of at most 256 KiB. Both sides cut in the
/// same way.
Chunks pieces_of(const Tensor& data, bool between_machines);

class Message;

/// What all communicators of a process share.
struct Process {
  std::atomic<bool> abandoned = false;  ///< set by Comm::abandon()
  bool checks_calls = false;            ///< ranks compare their calls before they make them
  const Group neighbors{Group::neighbors()};

  /// Moves all messages on. A thread that waits calls this.
  void advance();

  std::mutex mutex;  ///< of everything below
  std::vector<Message*> messages = {};
};

class Message : public Pending::Work {
 public:
  /// @param call   a Send or a Recv
  /// @param within the call that this message is part of: itself, or a collective
  /// @param tag    tells it from other messages between the two ranks
  Message(const Call& call, const Call& within, HostCopy data, MPI_Comm comm, int tag,
          bool between_machines, std::shared_ptr<Process> process);
  /// Without wait(): nothing may arrive any more. A sent message cannot be taken back, but the rank
  /// is then about to end all processes.
  ~Message() override;
  void wait() override;

  /// Starts what may start, and notices what has ended. Needs the process's mutex.
  void advance();

 private:
  MPI_Request& request(int64_t piece) { return requests_[static_cast<size_t>(piece % kAtOnce)]; }
  bool sends() const { return call_.operation == Operation::Send; }
  void begin(int64_t piece);
  void check_size(int64_t piece, const MPI_Status& status) const;

  static constexpr int64_t kAtOnce = 2;  ///< one is on the wire while the ranks agree on the next
  Call call_, within_;
  HostCopy data_;
  MPI_Comm comm_;
  int tag_;
  std::shared_ptr<Process> process_;
  Chunks pieces_;
  int64_t begun_ = 0, done_ = 0;
  std::array<MPI_Request, kAtOnce> requests_;
};

/// Waits for a request without spinning, unlike MPI_Wait: the core belongs to the kernels.
/// @param call the call that the request is part of, for messages
/// @throws Aborted if the rank gives up
void wait(MPI_Request& request, Process& process, const Call& call);

}  // namespace ladder::mpi
