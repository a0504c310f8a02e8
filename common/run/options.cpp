#include "common/run/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/error.h"
#include "common/run/backend.h"
#include "common/run/run_main.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// Far beyond any model; it keeps products of sizes inside int64_t.
constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 12;
constexpr int64_t kMaxChannels = 1 << 17;
constexpr int64_t kMaxThreads = 1 << 12;
constexpr int64_t kMaxCount = int64_t{1} << 40;

void require_range(std::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError("{} must be from {} to {}, not {}", flag, low, high, value);
}

// NaN fails every comparison, hence the form of the condition.
void require_finite_not_negative(std::string_view flag, double value) {
  if (!(value >= 0 && std::isfinite(value)))
    throw UserError("{} must be a finite number, at least 0, not {}", flag, value);
}

void require_readable(std::string_view flag, const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || !std::ifstream(path))
    throw UserError("{} {}: no such file, or it cannot be read", flag, path);
}

void check_files(const RunOptions& o) {
  if (o.data.empty()) throw UserError("--data is required: a text file to train on");
  require_readable("--data", o.data);
  std::error_code ignored;
  if (!o.load.empty() && !fs::exists(o.load, ignored))
    throw UserError("--load {}: no such file or directory", o.load);
  if (o.save_every > 0 && o.save.empty()) throw UserError("--save-every needs --save");

  const std::array outputs = {o.trace, o.report, o.timeline};
  for (auto out = outputs.begin(); out != outputs.end(); ++out) {
    if (out->empty()) continue;
    if (std::count(outputs.begin(), outputs.end(), *out) > 1)
      throw UserError("{} is named by two of --trace, --report and --timeline", *out);
    if (fs::equivalent(*out, o.data, ignored))
      throw UserError("{} is both --data and an output", *out);
  }
}

// CLI11 reads an empty number as 0.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) throw UserError("{} needs a value", option->get_name());
}

}  // namespace

void RunOptions::add_to(CLI::App& app) {
  app.option_defaults()->always_capture_default();
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_config("--config", "", "file of 'flag = value' lines; the command line wins");

  const auto models = fmt::format("one of {}", fmt::join(preset_names(), ", "));
  const char* const preset_value = "the model's";
  app.add_option("--model", model, models)->group("Model");
  app.add_option("--seq-len", seq_len, "tokens of a sequence; may only shorten")
      ->default_str(preset_value)
      ->group("Model");
  app.add_option("--layers", layers, "blocks")->default_str(preset_value)->group("Model");
  app.add_option("--heads", heads, "attention heads")->default_str(preset_value)->group("Model");
  app.add_option("--channels", channels, "width of the residual stream")
      ->default_str(preset_value)
      ->group("Model");

  app.add_option("--data", data, "text file to train on (required)")->group("Training");
  app.add_option("--batch", batch, "sequences of a step, over all ranks")->group("Training");
  app.add_option("--steps", steps, "in total, those before a resume counted")->group("Training");
  app.add_option("--lr", lr, "learning rate")->group("Training");
  app.add_option("--seed", seed, "of weights, data order and sampling")
      ->check(CLI::Range(0.0, 0x1p64, "0 to 2^64"))  // or -1 would wrap
      ->group("Training");
  app.add_option("--eval-every", eval_every, "steps between validations; 0: at the end only")
      ->group("Training");

  app.add_option("--backend", backend, "one of " + backend_names())->group("Machine");
  app.add_option("--ranks", ranks, "processes that share the work")->group("Machine");
  app.add_option("--threads", threads, "of a rank")->default_str("cores / ranks")->group("Machine");

  app.add_option("--sample", sample, "tokens of text to generate at the end")->group("Sampling");
  app.add_option("--temperature", temperature, "0: greedy")->group("Sampling");
  app.add_option("--top-k", top_k, "sample among the k likeliest tokens; 0: all")
      ->group("Sampling");

  app.add_option("--save", save, "directory for checkpoints")->group("Files");
  app.add_option("--save-every", save_every, "steps between checkpoints; 0: at the end only")
      ->group("Files");
  app.add_option("--load", load, "checkpoint to resume, or weights of a GPT-2")->group("Files");
  app.add_option("--trace", trace, "loss, norm and hash of each step, as JSON lines")
      ->group("Files");
  app.add_option("--report", report, "speed and memory of the run, as JSON")->group("Files");
  app.add_option("--timeline", timeline, "trace events for ui.perfetto.dev")->group("Files");
  app.add_flag("--quiet", quiet, "print nothing but errors")->group("Files");
}

void RunOptions::check() const {
  check_files(*this);
  require_range("--batch", batch, 1, kMaxBatch);
  require_range("--steps", steps, 0, kMaxCount);
  require_finite_not_negative("--lr", lr);
  require_range("--ranks", ranks, 1, kMaxThreads);
  if (threads) require_range("--threads", *threads, 1, kMaxThreads);
  require_range("--eval-every", eval_every, 0, kMaxCount);
  require_range("--save-every", save_every, 0, kMaxCount);
  require_range("--sample", sample, 0, kMaxCount);
  require_finite_not_negative("--temperature", temperature);
  require_range("--top-k", top_k, 0, kMaxCount);
  kernels_of(backend);
  gpt();
}

void RunOptions::refuse_ranks() const {
  if (ranks != 1) throw UserError("--ranks must be 1, not {}: chapters 01 to 06 know one", ranks);
}

GptConfig RunOptions::gpt() const {
  GptConfig config = preset(model);
  config.seq_len = seq_len.value_or(config.seq_len);
  config.layers = layers.value_or(config.layers);
  config.heads = heads.value_or(config.heads);
  config.channels = channels.value_or(config.channels);
  require_range("--layers", config.layers, 1, kMaxLayers);
  require_range("--channels", config.channels, 1, kMaxChannels);
  config.check();
  return config;
}

int RunOptions::thread_count() const {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return threads.value_or(std::max(1, cores / ranks));
}

SampleOptions RunOptions::sampling(const GptConfig& gpt) const {
  return {.count = sample,
          .temperature = temperature,
          .top_k = top_k,
          .seed = seed,
          .seq_len = gpt.seq_len,
          .vocab = gpt.vocab};
}

void parse_or_throw(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    refuse_empty_values(app);
  } catch (const CLI::Success& help) {
    app.exit(help);
    throw HelpPrinted{};
  } catch (const CLI::ConfigError& e) {
    throw UserError("--config: {}; lines are 'flag = value', and --help lists the flags", e.what());
  } catch (const CLI::FileError& e) {
    throw UserError("--config: {}", e.what());
  } catch (const CLI::ParseError& e) {
    throw UserError("{}; --help lists the flags", e.what());
  }
}

}  // namespace ladder
