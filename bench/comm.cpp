// Latency and bandwidth of all-reduce and its two halves, for each reduction, on threads or under
// mpirun.
//
//   bench_comm --ranks 4                       threads of one process
//   mpirun -n 4 bench_comm                     processes
//   bench_comm --ranks 2 --operation all_reduce --reduction halving,ring --bytes 67108864
//
// Prints a table in Markdown. Bytes are those of the whole tensor, of F32. A time is the median of
// several rounds; in each, calls follow one another, and the slowest rank counts.
//
// Bandwidth as NVIDIA's nccl-tests define it: `algorithm` is bytes over time; `bus` is that times
// 2 (N-1)/N for an all-reduce and (N-1)/N for its halves, which is what each of N ranks must send
// at least. So `bus` can be held against the speed of a link whatever N is.
//
// `native` is the communicator's own: of ThreadComm, or MPI's non-blocking collectives, waited for
// as ours are, without spinning.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/run/run_main.h"
#include "kernels/kernels.h"

namespace ladder::bench {
namespace {

constexpr int kRounds = 5;
constexpr int64_t kRoundNs = 50'000'000;  // a round takes about so long
constexpr int kMostCalls = 2000;

struct Options {
  int ranks = 1;
  std::vector<std::string> operations{"all_reduce", "reduce_scatter", "all_gather"};
  std::vector<std::string> reductions{"halving", "ring", "tree", "naive", "native"};
  std::vector<int64_t> bytes{4, 64, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20};
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Latency and bandwidth of reductions");
  app.add_option("--ranks", options.ranks, "as threads; under mpirun those that it started")
      ->check(CLI::Range(1, 4096));
  app.add_option("--operation", options.operations)
      ->delimiter(',')
      ->check(CLI::IsMember(options.operations));
  app.add_option("--reduction", options.reductions)
      ->delimiter(',')
      ->check(CLI::IsMember(options.reductions));
  app.add_option("--bytes", options.bytes, "of the whole tensor")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    app.exit(e);
    throw HelpPrinted();
  } catch (const CLI::ParseError& e) {
    throw UserError("{}", e.what());
  }
  return options;
}

/// One rank, and what it measures.
class Bench {
 public:
  Bench(Comm& comm, int threads) : comm_(comm) {
    ctx_.kernels = &cpu_kernels();
    ctx_.threads = threads;
  }

  /// Prints a row of the table, if this is legal here: the median time of a call.
  void run(Operation operation, std::string_view reduction, int64_t bytes) {
    const int64_t n = bytes / size_of(Dtype::F32);
    const bool halves = operation != Operation::AllReduce;
    if (comm_.size() == 1 || n == 0 || (halves && n % comm_.size() != 0)) return;
    Arena arena;
    const Tensor data = arena.zeros(Mem::Comm, "data", Dtype::F32, {n});
    std::unique_ptr<Collectives> collectives;
    const auto call = call_of(operation, reduction, data, arena, collectives);
    if (call) print(operation, reduction, bytes, time(call));
  }

 private:
  /// Null if so many ranks cannot reduce so.
  std::function<void()> call_of(Operation operation, std::string_view name, Tensor data,
                                Arena& arena, std::unique_ptr<Collectives>& collectives) {
    const Reduction reduction = *named<Reduction>(name);
    try {
      check_reduction(reduction, comm_.size());
    } catch (const UserError&) {
      return nullptr;
    }
    collectives =
        std::make_unique<Collectives>(comm_, ctx_, reduction, arena, Dtype::F32, data.size());
    Collectives* it = collectives.get();
    const Chunks chunks{data.size(), comm_.size()};
    switch (operation) {
      case Operation::AllReduce: return [=] { it->all_reduce(data); };
      case Operation::ReduceScatter: return [=] { it->reduce_scatter(data, chunks); };
      default: return [=] { it->all_gather(data, chunks); };
    }
  }

  /// Nanoseconds of a call. The first round warms up, and tells how many calls fill a round.
  double time(const std::function<void()>& call) {
    const double first = round(call, 2);
    const int calls =
        std::clamp(static_cast<int>(static_cast<double>(kRoundNs) / first), 1, kMostCalls);
    std::vector<double> rounds;
    for (int i = 0; i < kRounds; ++i) rounds.push_back(round(call, calls));
    std::ranges::nth_element(rounds, rounds.begin() + kRounds / 2);
    return rounds[kRounds / 2];
  }

  /// The mean of the slowest rank: the same on all.
  double round(const std::function<void()>& call, int calls) {
    comm_.barrier();
    const int64_t start = now_ns();
    for (int i = 0; i < calls; ++i) call();
    double mean = static_cast<double>(now_ns() - start) / calls;
    comm_.all_reduce({.ptr = &mean, .dtype = Dtype::F64, .shape = {1}}, Combine::Max);
    return mean;
  }

  void print(Operation operation, std::string_view reduction, int64_t bytes, double ns) const {
    if (comm_.rank() != 0) return;
    const double N = comm_.size(), algorithm = static_cast<double>(bytes) / ns;
    const double passes = operation == Operation::AllReduce ? 2 : 1;
    fmt::print("| {} | {} | {} | {} | {} | {:.1f} | {:.3g} | {:.3g} |\n", comm_.kind(),
               comm_.size(), to_string(operation), reduction, bytes, ns / 1000, algorithm,
               algorithm * passes * (N - 1) / N);
    std::fflush(stdout);
  }

  Comm& comm_;
  Ctx ctx_;
};

void measure(Comm& comm, const Options& options) {
  if (comm.size() == 1)
    throw UserError("one rank has nobody to reduce with; legal: --ranks 2 or more");
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::max(1, cores / comm.size());
  if (comm.rank() == 0)
    fmt::print(
        "{} ranks on {} cores\n\n"
        "| ranks are | ranks | operation | reduction | bytes | us | algorithm GB/s | bus GB/s |\n"
        "|---|---|---|---|---|---|---|---|\n",
        comm.size(), cores);
  Bench bench(comm, threads);
  for (const std::string& operation : options.operations)
    for (int64_t bytes : options.bytes)
      for (const std::string& reduction : options.reductions)
        bench.run(*named<Operation>(operation), reduction, bytes);
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  using namespace ladder;
  return run_main([&] {
    const bench::Options options = bench::parse(argc, argv);
    run_ranks(options.ranks, [&](Comm& comm) { bench::measure(comm, options); });
  });
}
