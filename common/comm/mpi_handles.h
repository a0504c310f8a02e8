// Objects of MPI. Each call is checked, each handle is freed.
#pragma once

#include <mpi.h>
#include <vector>

#include "common/comm/comm.h"
#include "common/comm/patience.h"

namespace ladder::mpi {

/// @throws CheckError naming the call and MPI's reason
void check(int error, const char* call);

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
  /// By rank: its number in MPI_COMM_WORLD.
  std::vector<int> ranks_in_world() const;

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

/// Ends all processes.
[[noreturn]] void end_processes(int status);

}  // namespace ladder::mpi
