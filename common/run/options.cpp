#include "common/run/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sched.h>
#include <unistd.h>

#include "common/comm/run_ranks.h"
#include "common/data/document_file.h"
#include "common/error.h"
#include "common/hf/file_names.h"
#include "common/run/backend.h"
#include "common/run/fault.h"
#include "common/run/sampler.h"
#include "common/run/tokenizer.h"
#include "common/save/directory.h"
#include "common/save/manifest.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// Larger than any run.
constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kByteVocab = 256;  // that a text can have
constexpr int64_t kMaxThreads = 1 << 12;
constexpr int64_t kMaxTimeout = 1'000'000;
constexpr float kMaxFloat = std::numeric_limits<float>::max();

// NaN fails every comparison, so the condition has this form.
void require_finite_not_negative(std::string_view flag, double value) {
  if (!(value >= 0 && std::isfinite(value)))
    throw UserError("{} must be a finite number, at least 0, not {}", flag, value);
}

void check_heads(const GptConfig& gpt, std::string_view backend) {
  const int64_t head = gpt.head_size(), most = kernels_of(backend).max_head;
  if (head > most)
    throw UserError(
        "--heads {} of --channels {} have {} channels each; with --backend {} at most {} are legal",
        gpt.heads, gpt.channels, head, backend, most);
}

// A plan takes no step.
void check_plan(const RunOptions& o) {
  for (const auto& [flag, path] :
       {std::pair{"--trace", o.trace}, {"--timeline", o.timeline}, {"--save", o.save}})
    if (!path.empty())
      throw UserError("{} {}: --plan-only takes no step; legal with it is --report", flag, path);
}

void check_files(const RunOptions& o) {
  std::error_code ignored;
  const fs::file_status load = fs::status(o.load, ignored);
  NamedPaths taken = {{"--tokenizer", o.tokenizer},
                      {"--data", o.data},
                      {"--data", DocumentFile::index_of(o.data)},
                      {"--load", o.load},
                      {"--save", o.save}};
  if (fs::is_regular_file(load))
    taken.emplace_back("--load", (fs::path(o.load).parent_path() / kConfigFile).string());
  o.check_outputs(taken);
  if (o.plan_only) return check_plan(o);
  if (o.data.empty()) throw UserError("--data is required: a text file to train on");
  if (!o.load.empty() && !fs::exists(load))
    throw UserError("--load {}: no such file or directory", o.load);
  // A pipe might never end.
  if (!o.load.empty() && !fs::is_regular_file(load) && !fs::is_directory(load))
    throw UserError("--load {}: neither a file nor a directory", o.load);
}

void check_save(const RunOptions& o) {
  if (o.plan_only) return;
  if (o.save.empty()) {
    const RunOptions unset;
    for (const auto& [flag, given] : {std::pair("--save-every", o.save_every > 0),
                                      {"--overwrite", o.overwrite},
                                      {"--keep", o.keep != unset.keep}})
      if (given) throw UserError("{} needs --save", flag);
    return;
  }
  refuse_foreign_files(o.save);
  o.refuse_to_replace();
}

void check_steps(const RunOptions& o) {
  if (o.plan_only) return;
  const std::optional<Manifest> manifest = o.load.empty() ? std::nullopt : Manifest::find(o.load);
  o.check_steps_after(manifest ? manifest->steps() : 0);
}

/// The cores of the machine, or fewer if a container has a quota: the processor time of a period,
/// such as "200000 100000" for two cores, or "max".
int cores() {
  const auto all = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  double time = 0, period = 0;
  std::ifstream quota("/sys/fs/cgroup/cpu.max");
  if (!(quota >> time >> period)) return all;
  return std::clamp(static_cast<int>(std::ceil(time / period)), 1, all);
}

/// Those to which this process is bound.
int bound_cores() {
  cpu_set_t mask;
  return ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : cores();
}

}  // namespace

void RunOptions::add_to(CommandLine& line) {
  const FlagRules of_model{.shown_default = "the model's"};
  line.group("Model");
  line.add("--model", model, fmt::format("one of {}", fmt::join(preset_names(), ", ")));
  line.add("--seq-len", seq_len,
           "tokens of a sequence; no more than the table of positions has, if there is one",
           of_model);
  line.add("--layers", layers, "blocks", of_model);
  line.add("--heads", heads, "attention heads", of_model);
  line.add("--channels", channels, "width of the residual stream", of_model);
  line.add("--vocab", vocab, "tokens that there are",
           {.shown_default = "the tokenizer's, or else the model's"});
  line.add("--tied-head", tied_head, "the head's weights are the token embedding, as in GPT-2");

  line.group("Training");
  line.add("--data", data, "file to train on: text, or tokens of a tokenizer (required)");
  line.add(
      "--tokens", tokens,
      "what --data holds: bytes of a text, or numbers of 16 or 32 bits, as nanoGPT writes them; "
      "auto: what a header of llm.c says, or else bytes");
  line.add("--tokenizer", tokenizer,
           "folder with tokenizer.json: --data is encoded, or holds its tokens; --vocab is its own",
           {.shown_default = "the one that stands in the folder of --load"});
  line.add("--batch", batch, "sequences of a step, over all ranks");
  line.add("--steps", steps, "in total, those before a resume counted");
  line.add("--lr", lr, "learning rate");
  line.add("--seed", seed, "of weights, data order and sampling");
  line.add("--eval-every", eval_every, "steps between validations; 0: at the end only");

  line.group("Machine");
  const auto is_cpu = [](const Backend& one) { return one.name == "cpu"; };
  if (std::ranges::none_of(backends(), is_cpu)) backend = "ref";  // LADDER_CPU_TABLE=OFF
  line.add("--backend", backend, "one of " + backend_names());
  line.add("--ranks", ranks,
           "ranks that split the work: threads of this program; under mpirun the processes are the "
           "ranks");
  line.add("--timeout", timeout,
           "seconds that a rank waits for others before it ends the run; 0: for ever");
  line.add(
      "--fault", fault,
      "an experiment: KIND:OPERATION:N, as skip:all_reduce:3; the N-th such operation (from 0) of "
      "each group of ranks, or with recv the N-th message of each rank, is skipped, done twice, "
      "corrupted or has its halves swapped, or its last rank stalls, dies or fails");
  line.add("--threads", threads,
           "threads of a rank; with a GPU they draw the initial weights, and hash weights",
           {.shown_default = "cores it may use / ranks on this machine"});
  line.add("--plan-only", plan_only, "print what a run would take, and stop: needs no text");

  line.group("Sampling");
  line.add("--sample", sample, "tokens of text to generate at the end");
  line.add("--temperature", temperature, "0: greedy", {.needs = {"--sample"}});
  line.add("--top-k", top_k, "sample among the k likeliest tokens; 0: all",
           {.needs = {"--sample"}});

  line.group("Files");
  line.record_in(*this);
  line.add("--save", save,
           "directory for checkpoints; none is written with a NaN or an infinity in it, or in the "
           "loss");
  line.add("--overwrite", overwrite,
           "--save may replace a checkpoint that this run does not go on from");
  line.add("--save-every", save_every, "steps between checkpoints; 0: at the end only");
  line.add("--keep", keep, "how many checkpoints --save holds; --load also takes an older one");
  line.add("--load", load,
           "checkpoint to resume, or weights of a GPT-2 or a LLaMA, with the tokenizer that stands "
           "there");
  line.add("--trace", trace,
           "loss, norm and hash of each step, as JSON lines; grows as FILE.partial");
  line.add("--report", report, "flags, speed and memory of the run, as JSON");
  line.add("--timeline", timeline, "trace events for ui.perfetto.dev");
  line.add("--quiet", quiet, "print nothing but errors");
}

void RunOptions::check() {
  check_files(*this);
  check_save(*this);
  take_tokenizer();
  require_range("--batch", batch, 1, kMaxBatch);
  require_range("--steps", steps, 0, kMaxCount);
  require_finite_not_negative("--lr", lr);
  if (lr > kMaxFloat) throw UserError("--lr must be at most {}, not {}", kMaxFloat, lr);
  require_range("--ranks", ranks, 1, kMaxThreads);
  require_range("--timeout", timeout, 0, kMaxTimeout);
  fault_of(fault);
  if (threads) require_range("--threads", *threads, 1, kMaxThreads);
  require_range("--eval-every", eval_every, 0, kMaxCount);
  require_range("--save-every", save_every, 0, kMaxCount);
  require_range("--keep", keep, 1, kMaxCount);
  require_range("--sample", sample, 0, kMaxCount);
  require_finite_not_negative("--temperature", temperature);
  require_range("--top-k", top_k, 0, kMaxCount);
  check_heads(gpt(), backend);
  check_steps(*this);
  if (plan_only) return;
  check_size(std::max(ranks, launched_processes()));
  take_text();
}

void RunOptions::check_outputs(NamedPaths taken) const {
  for (const NamedPath& output :
       {NamedPath{"--trace", trace}, {"--report", report}, {"--timeline", timeline}})
    take_place(output, taken);
}

void RunOptions::take_tokenizer() {
  if (!text_tokenizer && (tokens != TokenKind::Bytes || !tokenizer.empty()))
    text_tokenizer = find_tokenizer(tokenizer, load);
  if (!text_tokenizer) return;
  if (tokens == TokenKind::Bytes)
    throw UserError("--tokens bytes: with --tokenizer {} a token is no byte; legal is one of them",
                    tokenizer);
  const int64_t size = text_tokenizer->tokenizer.vocab();
  if (vocab.value_or(size) < size)
    throw UserError("--vocab {}: the tokenizer in {} has {} tokens; legal is at least that", *vocab,
                    text_tokenizer->path, size);
  vocab = vocab.value_or(size);
}

void RunOptions::take_text() {
  if (file) return;
  file = std::make_shared<const InputFile>(data, "--data");
  format = find_format(*file, tokens, text(gpt()).vocab, !!text_tokenizer);
  if (!text_tokenizer || !format.bytes()) return;
  encoded = encode(*text_tokenizer, data, thread_count());
  format = {.width = encoded->width};
  file = std::make_shared<const InputFile>(data, "--data", encoded->bytes);
}

void RunOptions::set_ranks(int64_t degree) {
  if (ranks == 1 && !under_mpirun()) ranks = static_cast<int>(std::max<int64_t>(1, degree));
  check();
}

void RunOptions::refuse_ranks() const {
  const int started = std::max(ranks, launched_processes());
  if (started != 1)
    throw UserError("--ranks must be 1, not {}: this chapter knows one rank", started);
  if (!fault.empty()) throw UserError("--fault {}: this chapter knows one rank", fault);
  if (plan_only) check_size(1);
}

void RunOptions::refuse_to_replace() const {
  const bool goes_on = !load.empty() && resolved(load) == resolved(save);
  if (checkpoint_in(save) && !goes_on && !overwrite)
    throw UserError(
        "--save {}: holds a checkpoint; legal are --load {}, which goes on from it, --overwrite, "
        "which gives it up, and another directory",
        save, save);
}

// A run stops when it has taken --steps, and it saves after a step.
void RunOptions::check_steps_after(int64_t done) const {
  if (done > steps)
    throw UserError("--load {}: {} steps are done; --steps must be at least that, not {}", load,
                    done, steps);
  if (done == steps && !save.empty())
    throw UserError("--save {}: no step is left to take before it: {} of --steps {} are done", save,
                    done, steps);
}

int RunOptions::thread_count() const {
  if (threads) return *threads;
  if (!under_mpirun()) return std::max(1, std::min(cores(), bound_cores()) / ranks);
  // mpirun may have bound each process to other cores.
  return std::clamp(cores() / launched_here(), 1, bound_cores());
}

TextOptions RunOptions::text(const GptConfig& gpt) const {
  return {.path = data,
          .format = format,
          .seq_len = gpt.seq_len,
          .vocab = text_tokenizer ? text_tokenizer->tokenizer.vocab() : gpt.vocab,
          .token_bytes = text_tokenizer ? text_tokenizer->bytes : nullptr,
          .encoded = encoded,
          .file = file};
}

SampleOptions RunOptions::sampling(const GptConfig& gpt) const {
  SampleOptions options{.count = sample,
                        .temperature = temperature,
                        .top_k = top_k,
                        .seed = seed,
                        .seq_len = gpt.seq_len,
                        .vocab = format.bytes() ? kByteVocab : gpt.vocab,
                        .bytes = format.bytes()};
  if (!text_tokenizer || options.bytes) return options;
  options.vocab = text_tokenizer->tokenizer.vocab();
  options.tokenizer = {text_tokenizer, &text_tokenizer->tokenizer};
  return options;
}

}  // namespace ladder
