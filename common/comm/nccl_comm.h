// NcclComm: tensors of GPUs travel by NCCL, NVIDIA's library for that: from GPU to GPU without the
// host where the machine can, beside the kernels, on a stream of their own.
//
// Which source file defines this is CMake's choice: nccl_comm.cpp, or nccl_none.cpp in a build
// without the library.
#pragma once

#include <memory>

#include "common/comm/comm.h"
#include "kernels/device.h"

namespace ladder {

/// A group of the same ranks as `carrier`, each with a GPU. Every rank calls it.
///
/// NCCL does the collectives and exchange() of tensors in Place::Device; so it carries the
/// reductions of common/comm/reduction.h, and is what `native` means. All else is up to `carrier`:
/// tensors in host memory, maxima of floats (NCCL's may lose a NaN), and lone messages, which NCCL
/// would serve strictly in order: two ranks that both send first would wait forever.
///
/// Ranks connect when they first exchange, and when a collective first takes a new way. Such a call
/// blocks inside of the library until its peers come; only later ones are queued, and only those
/// does abandon() end. So a rank that fails in its first step, while a thread beside it waits to
/// connect, hangs and must be killed.
///
/// @param carrier reaches all ranks already, as MpiComm does; must live longer, and is used by
///                nobody beside this
/// @param device of --backend cuda, which is attached to both
/// @throws UserError if there is no GPU, or no NCCL in this build
std::unique_ptr<Comm> open_nccl(Comm& carrier, Device* device);

/// Whether this build has it.
bool has_nccl();

}  // namespace ladder
