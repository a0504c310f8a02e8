// In place of nccl_comm.cpp where there is no NCCL.
#include "common/comm/nccl_comm.h"
#include "common/error.h"

namespace ladder {

bool has_nccl() { return false; }

std::unique_ptr<Comm> open_nccl(Comm&, Device*) {
  throw UserError(
      "NCCL: this build has none; MPI carries tensors of GPUs, too, by way of the host");
}

}  // namespace ladder
