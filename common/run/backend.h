// Backends: which tables of kernels this build has, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/comm/comm.h"
#include "common/comm/run_ranks.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

struct RunOptions;

/// Who computes: a table of kernels, by the name that --backend takes.
struct Backend {
  std::string_view name;
  const Kernels& (*kernels)();
  /// The device that its kernels run on; null: they run on the host.
  std::unique_ptr<Device> (*open)() = nullptr;
  /// Carries the device's tensors where `comm` would take them by way of the host; null: nothing
  /// does.
  std::unique_ptr<Comm> (*network)(Comm& comm, Device* device) = nullptr;
};

/// All backends of this build. CMake chooses the source file that defines it: backend_cuda.cpp with
/// the CUDA toolkit, backend_cuda_on_cpu.cpp in the preset of that name, backend_ref.cpp without
/// the cpu kernels, else backend_host.cpp.
std::span<const Backend> backends();

/// "ref, cpu"
std::string backend_names();

/// @throws UserError if this build has no such backend, naming those it has.
const Kernels& kernels_of(std::string_view backend);

/// Whether its kernels run on a device, where host threads mean nothing.
bool on_device(std::string_view backend);

/// The device of --backend; null: its kernels run on the host.
/// @throws UserError if this machine has none
std::unique_ptr<Device> open_device(const RunOptions& options);

/// run_ranks() of --ranks, each with the network of --backend: processes with a GPU each use NCCL,
/// if this build has it. Processes first compare what they were given (common/run/agreement.h).
void start_ranks(const RunOptions& options, const RankBody& body);

/// What the context of a rank takes beyond its flags.
struct CtxOptions {
  int64_t* flops = nullptr;  ///< counts the operations of products; null: nobody counts
  Comm* comm = nullptr;      ///< of the rank; null: it is alone. Is attached to the device
  /// Of the pieces that a sum has over ranks, those that this rank adds (docs/same_bits.md).
  int64_t leaves = kLeaves, token_chunks = kTokenChunks;
};
/// The context of one rank; its scratch memory counts as Workspace.
/// @param device of open_device(), which `arena` allocates on
Ctx make_ctx(const RunOptions& run, Arena& arena, Device* device, const CtxOptions& options = {});
/// Bytes of that scratch memory.
int64_t scratch_bytes(const RunOptions& options);

}  // namespace ladder
