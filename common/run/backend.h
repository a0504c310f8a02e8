// Backends: the tables of kernels that this build has, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

class Comm;
struct RunOptions;

/// Who computes: a table of kernels, and its name for --backend.
struct Backend {
  std::string_view name;
  const Kernels& (*kernels)();
  /// Opens the device on which its kernels run. Null: they run on the host.
  std::unique_ptr<Device> (*open)() = nullptr;
  /// Makes a Comm that carries tensors of the device, which `comm` would send through the host.
  /// Null: there is none.
  std::unique_ptr<Comm> (*network)(Comm& comm, Device* device) = nullptr;
};

/// All backends of this build. CMake chooses the source that defines it: backend_cuda.cpp with the
/// CUDA toolkit, backend_cuda_on_cpu.cpp in the preset of that name, backend_ref.cpp without the
/// cpu kernels, otherwise backend_host.cpp.
std::span<const Backend> backends();

/// "ref, cpu"
std::string backend_names();

/// @throws UserError that names the backends of this build, if `backend` is none of them
const Kernels& kernels_of(std::string_view backend);

/// Whether its kernels run on a device. Host threads play no part there.
bool on_device(std::string_view backend);

/// The device of --backend. Null: its kernels run on the host.
/// @throws UserError if this machine has no such device
std::unique_ptr<Device> open_device(const RunOptions& options);

/// run_ranks() for --ranks, with the network of --backend on each rank: processes that have a GPU
/// use NCCL if this build has it. Processes first compare what they were given
/// (common/run/agreement.h).
void start_ranks(const RunOptions& options, const std::function<void(Comm&)>& body);

/// What the context of a rank takes beyond its flags.
struct CtxOptions {
  int64_t* flops = nullptr;  ///< counts the operations of products; null: no counting
  Comm* comm = nullptr;      ///< of this rank, to be attached to the device; null: only this rank
  /// A sum over channels has kLeaves leaves, one over the tokens of a sequence has kTokenChunks
  /// chunks (docs/same_bits.md). Ranks that split such a sum have equal parts of it; these are this
  /// rank's numbers of leaves and chunks.
  int64_t leaves = kLeaves, token_chunks = kTokenChunks;
};
/// The context of one rank; its scratch memory counts as Workspace.
/// @param device from open_device(); `arena` allocates on it
Ctx make_ctx(const RunOptions& run, Arena& arena, Device* device, const CtxOptions& options = {});
/// Bytes of the scratch memory.
int64_t scratch_bytes(const RunOptions& options);

}  // namespace ladder
