// What is told of a run: the plan before it, a line of --trace for each step, and the table and
// --report after it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/comm/call.h"
#include "common/comm/mesh_shape.h"
#include "common/data/text.h"
#include "common/model/config.h"
#include "common/run/options.h"
#include "kernels/arena.h"

namespace ladder {

/// What a step reports.
struct StepRecord {
  int64_t step;      ///< from 0 on
  float loss;        ///< mean over the targets of the batch, before the update
  double grad_norm;  ///< before clipping
  float lr;
  int64_t tokens;                             ///< seen in this step
  std::map<std::string, double> others = {};  ///< what a chapter adds to the trace
};

/// A loss as a screen shows it. The sign of a NaN is left out, because it means nothing.
std::string loss_text(double loss);

/// One line of JSON, with its newline. "loss", "grad_norm", "lr" and `others` are hexadecimal
/// floats, so equal text means equal bits. "decimal" has the same numbers for people and for plots;
/// it is null where a number is not finite. param_hash is that of the weights after the update
/// (common/model/init.h).
std::string trace_line(const StepRecord& record, uint64_t param_hash);

/// How a run is spread over ranks.
struct RunLayout {
  MeshShape mesh;
  int64_t batch = 0;          ///< sequences of a step
  int64_t micro_batch = 0;    ///< sequences of one forward on one rank
  int threads = 1;            ///< per rank
  int64_t experts = 1;        ///< ranks that split the experts of a block: --ep
  std::string comm = "none";  ///< Comm::kind(), once the run has begun
};
RunLayout run_layout(const RunOptions& run, int64_t micro_batch, const MeshShape& mesh = {});

/// What is known before the first step.
struct RunPlan {
  std::string chapter;  ///< "01_sgd"
  GptConfig gpt;
  RunLayout layout;
  MemoryBytes predicted;  ///< peak bytes, from the chapter's formula
};

/// What is known after the last step.
struct RunResult {
  int64_t steps = 0;  ///< done, including those before a resume
  /// That of the last step's batch, before its update; none if no step ran.
  std::optional<double> final_loss;
  std::optional<double> val_loss;              ///< none if a signal stopped the run
  TargetCount final_over = {}, val_over = {};  ///< what the two are means over
  TargetCount read = {};                       ///< of all steps of this run
  double tokens_per_second = 0;
  double step_ms_median = 0;
  std::string device = {};   ///< the device's name; empty: the host
  int clock_mhz = 0;         ///< the device's highest clock
  MemoryBytes measured;      ///< peak bytes, of this rank
  CommStatistics sent = {};  ///< by this rank
};

/// The number of equally likely tokens among which a model with this mean loss chooses: exp(loss).
double perplexity(double loss);

/// How many parameters the whole model has.
int64_t parameters(const GptConfig& gpt);

/// TFLOP/s of a device's dense 16-bit products, from its maker's data sheet; 0 if it is not known
/// here.
double peak_tflops(std::string_view device);

/// The operations of the model for one token: 6 (L M + C Vp) + 12 L C T, as chapter 23 counts them.
/// M is the number of weights in the products of a block.
double flops_per_token(const GptConfig& gpt);

/// How many devices a run has. Processes have a device each; threads share one.
int64_t devices(const RunPlan& plan);

/// The share of the devices' peak_tflops() that the operations of the model take. 0 if not known.
double mfu(const RunPlan& plan, const RunResult& result);

/// Model, layout and memory plan, for the screen.
std::string plan_text(const RunPlan& plan);

/// The table at the end, for the screen.
std::string result_text(const RunPlan& plan, const RunResult& result);

/// What one rank reports of itself: bytes of memory, predicted and measured (null for a plan), and
/// what it sent.
nlohmann::json memory_json(int rank, const MemoryBytes& predicted,
                           const std::optional<MemoryBytes>& measured);
nlohmann::json comm_json(int rank, const CommStatistics& statistics);

/// How the run was started: its flags with their values, the command line, the host.
nlohmann::json run_json(const RunOptions& options);

/// What --report says of a run before it has begun: "chapter", "model", "layout".
nlohmann::json plan_json(const RunPlan& plan);

/// The object of --report without "memory" and "comm", which are lists of the above. Numbers that
/// are not finite become null.
nlohmann::json report_json(const RunPlan& plan, const RunResult& result);

/// The middle value. For an even count, the mean of the middle two. 0 for no values.
double median(std::vector<double> values);

}  // namespace ladder
