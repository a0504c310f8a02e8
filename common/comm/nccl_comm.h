// NcclComm: tensors of GPUs travel by NCCL, NVIDIA's library. They go from GPU to GPU, without the
// host where the machine can do that. They travel on a stream of their own, while kernels run.
//
// CMake chooses the source that defines this: nccl_comm.cpp, or nccl_none.cpp in a build without
// the library.
#pragma once

#include <memory>

#include "common/comm/comm.h"
#include "kernels/device.h"

namespace ladder {

/// A group of the same ranks as `carrier`, each with a GPU. Every rank calls it.
///
/// NCCL does the collectives and exchange() of tensors in Place::Device. So it carries the
/// reductions of common/comm/reduction.h, and it is what `native` means. `carrier` does the rest:
/// tensors in host memory, maxima of floats (NCCL's may lose a NaN), and single messages. NCCL
/// would handle single messages strictly in order: two ranks that both send first would wait for
/// ever.
///
/// Ranks connect at their first exchange, and whenever a collective takes a new way for the first
/// time. Such a call blocks inside the library until its peers come. Only later calls are queued,
/// and abandon() can end only those. So a rank that fails in its first step, while a thread beside
/// it waits to connect, hangs until the timeout of `carrier` ends it.
///
/// @param carrier reaches all ranks already, as MpiComm does; must live longer; nobody else may use
/// it
/// @param device that of --backend cuda; it is attached to both
/// @throws UserError if there is no GPU, or if this build has no NCCL
std::unique_ptr<Comm> open_nccl(Comm& carrier, Device* device);

/// Whether this build has NCCL.
bool has_nccl();

}  // namespace ladder
