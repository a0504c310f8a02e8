// Objects of MPI: each call checked, each handle freed.
#pragma once

#include <mpi.h>
#include <string_view>
#include <thread>

#include "common/comm/comm.h"
#include "common/comm/failure.h"
#include "common/comm/liveness.h"

namespace ladder::mpi {

/// @throws CheckError naming the call and MPI's reason
void check(int error, const char* call);

/// Until it is destroyed. Calls of MPI may wait for other ranks for ever, and nobody can end them:
/// after as long as `patience` has it this ends the process, and mpirun then all others.
/// @param what "other ranks have not come": "error: rank 1: for 60 s " stands before it
std::jthread end_unless_done(const Patience& patience, std::string_view what);

/// MPI from MPI_Init_thread to MPI_Finalize, each for as long as `patience` has it. One a process
class Session {
 public:
  /// @throws CheckError if this MPI allows only one thread to communicate
  explicit Session(const Patience& patience);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

 private:
  Patience patience_;
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

/// Prints the line of `end`, and ends all processes with its status.
[[noreturn]] void end_processes(const Failure& end);

}  // namespace ladder::mpi
