// Objects of MPI. Each call is checked, each handle is freed.
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

/// Works until the result is destroyed. Some calls of MPI may wait for other ranks forever, and
/// nothing can end them. After the time that `patience` gives, this ends the process, and mpirun
/// then ends all others.
/// @param what "other ranks have not come"; the message puts "error: rank 1: for 60 s " before it
std::jthread end_unless_done(const Patience& patience, std::string_view what);

/// MPI from MPI_Init_thread to MPI_Finalize. `patience` limits how long each may take. One per
/// process
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

/// A communicator of our own. It returns errors.
class Group {
 public:
  explicit Group(MPI_Comm comm);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Frees it, but not while an exception unwinds. That exception will end all processes, and other
  /// threads of this process may still receive messages in it.
  ~Group();
  static MPI_Comm copy_of_world();

  MPI_Comm get() const { return comm_; }
  int rank() const;
  int size() const;

 private:
  MPI_Comm comm_;
};

/// MPI's sum and maximum, or ours where MPI has none that fits: for 16-bit floats, which it does
/// not know, and for the maximum of floats, where NaN must win.
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
/// The number of elements, as MPI counts. @throws CheckError if MPI cannot count so many
int count(const Tensor& data);

/// Prints the line of `end`, and ends all processes with its status.
[[noreturn]] void end_processes(const Failure& end);

}  // namespace ladder::mpi
