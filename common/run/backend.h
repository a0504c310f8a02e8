// Backends: which tables of kernels this build has, by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

struct RunOptions;

struct Backend {
  std::string_view name;
  const Kernels& (*kernels)();
};

/// All backends of this build. Which source file defines it is CMake's choice:
/// backend_host.cpp without CUDA.
std::span<const Backend> backends();

/// "ref, cpu"
std::string backend_names();

/// @throws UserError if this build has no such backend, naming those it has.
const Kernels& kernels_of(std::string_view backend);

/// The context of one rank; its scratch memory counts as Workspace.
Ctx make_ctx(const RunOptions& options, Arena& arena);

}  // namespace ladder
