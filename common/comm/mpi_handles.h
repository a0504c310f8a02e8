// Objects of MPI: each call checked, each handle freed.
#pragma once

#include <atomic>
#include <memory>
#include <mpi.h>

#include "common/comm/comm.h"
#include "common/comm/failure.h"
#include "common/comm/patience.h"

namespace ladder::mpi {

/// @throws CheckError naming the call and MPI's reason
void check(int error, const char* call);

/// MPI from MPI_Init_thread to MPI_Finalize. One a process
class Session {
 public:
  /// MPI waits for all processes to come here. Where one does not, for as long as `patience` has
  /// it, this ends the process, and mpirun then all others.
  /// @throws CheckError if this MPI allows only one thread to communicate
  explicit Session(const Patience& patience);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { MPI_Finalize(); }
};

/// A communicator of our own, whose errors are returned.
class Group {
 public:
  explicit Group(MPI_Comm comm);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Frees it, but not while an exception unwinds: that ends all processes, and other threads of
  /// this one may still take messages that others have sent in it.
  ~Group();
  static MPI_Comm copy_of_world();

  MPI_Comm get() const { return comm_; }
  int rank() const;
  int size() const;

 private:
  MPI_Comm comm_;
};

/// MPI's sum and maximum where it has them; ours for 16-bit floats, which it does not know, and for
/// the maximum of floats, where NaN shall win.
class Op {
 public:
  Op(Dtype dtype, Combine combine);
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  ~Op();
  MPI_Op get() const { return op_; }

 private:
  MPI_Op op_;
  bool own_ = false;
};

MPI_Datatype datatype(Dtype dtype);
/// Elements as MPI counts them. @throws CheckError if they are more than it can
int count(const Tensor& data);

/// What all communicators of a process share.
struct Process {
  std::atomic<bool> abandoned = false;  ///< by Comm::abandon()
  bool checks_calls = false;            ///< ranks compare what they call, before they do it
};

/// Waits for a request without spinning, as MPI_Wait does: the core belongs to the kernels.
/// @param call that it belongs to, for messages
/// @throws Aborted if the rank gives up
MPI_Status wait(MPI_Request& request, const Process& process, const Call& call);

/// Prints the line of `end`, and ends all processes with its status.
[[noreturn]] void end_processes(const Failure& end);

}  // namespace ladder::mpi
