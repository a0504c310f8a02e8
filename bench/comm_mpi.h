// MPI's own collectives, as a program calls them that has nothing else to do meanwhile.
#pragma once

#include <functional>

#include "common/comm/call.h"

namespace ladder::bench {

/// A call of `operation` on F32, in place; null without mpirun, or in a build without MPI.
/// AllReduce, ReduceScatter and AllGather. data (N n)
std::function<void()> mpi_own(Operation operation, Tensor data);

}  // namespace ladder::bench
