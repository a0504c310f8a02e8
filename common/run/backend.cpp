#include "common/run/backend.h"

#include "common/error.h"
#include "common/run/agreement.h"
#include "common/run/fault.h"
#include "common/run/options.h"
#include "kernels/cpu/team.h"

namespace ladder {
namespace {

const Backend& find(std::string_view name) {
  for (const Backend& backend : backends())
    if (backend.name == name) return backend;
  if (name == "cpu")
    throw UserError("--backend cpu: this build is without it (LADDER_CPU_TABLE=OFF) and has {}",
                    backend_names());
  const bool preset = name == "cuda" || name == "cuda-on-cpu";
  throw UserError("--backend {}: this build has {}{}", name, backend_names(),
                  preset ? fmt::format("; the preset {} builds it", name) : "");
}

// Threads that cannot start should fail here, not in the middle of the first step.
void start_threads(int threads) {
  try {
    Team::mine(threads);
  } catch (const OutOfThreads& e) {
    throw UserError(
        "--threads {}: {}; fewer --threads or a smaller `ulimit -s` (of at least 1024) take less",
        threads, e.what());
  }
}

}  // namespace

std::string backend_names() {
  std::string names;
  for (const Backend& backend : backends())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", backend.name);
  return names;
}

const Kernels& kernels_of(std::string_view name) { return find(name).kernels(); }

bool on_device(std::string_view name) { return find(name).open != nullptr; }

std::unique_ptr<Device> open_device(const RunOptions& options) {
  const Backend& backend = find(options.backend);
  return backend.open ? backend.open() : nullptr;
}

void start_ranks(const RunOptions& options, const RankBody& given) {
  if (options.sample > 0)
    throw UserError(
        "--sample: this program writes no text; ch31_generate does, from the checkpoint that "
        "--save "
        "writes here and --load names there");
  const RankBody body = planted(options.fault, given);
  if (options.plan_only) options.check_size(options.ranks);  // else check() has done it
  const auto run_rank = [&](Comm& comm) {
    // Threads share the options of their process.
    if (comm.size() > 1 && under_mpirun()) check_agreement(comm, options);
    const Backend& backend = find(options.backend);
    const std::unique_ptr<Device> device = backend.network ? backend.open() : nullptr;
    const std::unique_ptr<Comm> network =
        backend.network ? backend.network(comm, device.get()) : nullptr;
    body(network ? *network : comm);
  };
  run_ranks(options.ranks, run_rank, std::chrono::seconds(options.timeout));
}

Ctx make_ctx(const RunOptions& run, Arena& arena, Device* device, const CtxOptions& options) {
  if (options.comm) options.comm->attach(device);
  Ctx ctx;
  ctx.kernels = &kernels_of(run.backend);
  ctx.device = device;
  ctx.flops = options.flops;
  ctx.leaves = static_cast<int>(options.leaves);
  ctx.token_chunks = static_cast<int>(options.token_chunks);
  ctx.threads = run.thread_count();
  start_threads(ctx.threads);
  ctx.scratch = arena.alloc(Mem::Workspace, "scratch", Dtype::U8,
                            {device ? 1 : ctx.threads, ctx.kernels->scratch_bytes});
  return ctx;
}

int64_t scratch_bytes(const RunOptions& options) {
  const int parts = on_device(options.backend) ? 1 : options.thread_count();
  return parts * kernels_of(options.backend).scratch_bytes;
}

}  // namespace ladder
