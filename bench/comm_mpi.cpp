#include "bench/comm_mpi.h"

#include <mpi.h>

#include "common/comm/run_ranks.h"
#include "kernels/check.h"

namespace ladder::bench {

std::function<void()> mpi_own(Operation operation, Tensor data) {
  if (!under_mpirun()) return nullptr;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  void* at = data.ptr;
  const int whole = static_cast<int>(data.size()), chunk = whole / ranks;
  switch (operation) {
    case Operation::AllReduce:
      return [=] { MPI_Allreduce(MPI_IN_PLACE, at, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    case Operation::ReduceScatter:
      return [=] {
        MPI_Reduce_scatter_block(MPI_IN_PLACE, at, chunk, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    case Operation::AllGather:
      return
          [=] { MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, at, chunk, MPI_FLOAT, MPI_COMM_WORLD); };
    default: CHECK(false, "no benchmark of {}", to_string(operation));
  }
}

}  // namespace ladder::bench
