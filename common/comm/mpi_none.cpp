// Replaces mpi_comm.cpp in a build without MPI.
#include "common/comm/run_ranks.h"
#include "common/error.h"

namespace ladder {

void run_mpi(int, const RankBody&, std::chrono::milliseconds) {
  throw UserError("started by mpirun, but built without MPI; legal: --ranks N without mpirun");
}

}  // namespace ladder
