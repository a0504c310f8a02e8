// Replaces nccl_comm.cpp in a build without NCCL.
#include "common/comm/nccl_comm.h"
#include "common/error.h"

namespace ladder {

bool has_nccl() { return false; }

std::unique_ptr<Comm> open_nccl(Comm&, Device*) {
  throw UserError(
      "NCCL: this build has none; MPI carries tensors of GPUs, too, by way of the host");
}

}  // namespace ladder
