// The backends of a build with the CUDA toolkit. The machine may still have no GPU.
#include <array>

#include "common/comm/nccl_comm.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/run/backend.h"
#include "kernels/cuda/backend.h"

namespace ladder {
namespace {

std::unique_ptr<Device> open_gpu() {
  if (cuda::device_count() == 0)
    throw UserError("--backend cuda: there is no CUDA device here; legal are ref and cpu");
  return cuda::open_device(launched_local_rank() % cuda::device_count());
}

/// Threads read each other's tensors on the GPU that they share. Processes cannot.
std::unique_ptr<Comm> open_network(Comm& comm, Device* device) {
  return comm.kind() == "mpi" && has_nccl() ? open_nccl(comm, device) : nullptr;
}

}  // namespace

std::span<const Backend> backends() {
  static constexpr std::array kBackends = {Backend{"ref", ref_kernels}, Backend{"cpu", cpu_kernels},
                                           Backend{"cuda", cuda::kernels, open_gpu, open_network}};
  return kBackends;
}

}  // namespace ladder
