// 35_evaluate: what a model can do, with scores that no batch changes. It trains nothing.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/26_packing/bundles.h"
#include "chapters/26_packing/plan.h"
#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/open.h"
#include "chapters/35_evaluate/requests.h"
#include "chapters/35_evaluate/scorer.h"
#include "chapters/35_evaluate/scores.h"
#include "chapters/35_evaluate/tasks.h"
#include "chapters/35_evaluate/writer.h"
#include "common/json.h"
#include "common/output_file.h"
#include "common/own_place.h"
#include "common/run/backend.h"
#include "common/run/command_line.h"
#include "common/run/ending.h"
#include "common/run/model_in.h"
#include "common/run/options.h"
#include "common/run/report.h"
#include "common/run/run_main.h"
#include "common/run/text_codec.h"

namespace ladder {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

struct EvaluateOptions {
  RunOptions run;  ///< --backend and --threads
  std::string load, out, report;
  std::vector<std::string> tasks;
  std::optional<int64_t> seq_len;
  int64_t shots = 0, batch = 8, row_documents = 64;

  void add_to(CommandLine& line) {
    line.group("35_evaluate");
    line.add("--load", load, "a checkpoint of any chapter, or a directory of Hugging Face");
    line.add("--tasks", tasks, "files of tasks, a JSON object on each line");
    line.add("--shots", shots, "other questions of the file, with answers, before each question");
    line.add("--out", out, "log-likelihoods and scores of each line, in the order of the tasks");
    line.add("--seq-len", seq_len, "the window T, from which chunks of keys come",
             {.shown_default = "the longest text of the model"});
    line.add("--batch", batch, "rows of a pass, and answers that grow together");
    line.add("--row-documents", row_documents, "texts that share a row at most; 1: none does");
    line.add("--backend", run.backend, backend_names());
    line.add("--threads", run.threads, "threads", {.shown_default = "the cores"});
    line.add("--report", report, "scores of each file, and what was counted, as JSON");
  }
  /// @throws UserError
  void check() const {
    if (load.empty()) throw UserError("--load is missing: a checkpoint of any chapter");
    if (tasks.empty()) throw UserError("--tasks is missing: files of tasks");
    require_range("--shots", shots, 0, 1 << 10);
    require_range("--batch", batch, 1, 1 << 12);
    require_range("--row-documents", row_documents, 1, 1 << 16);
    require_range("--threads", run.threads.value_or(1), 1, 1 << 12);
    if (seq_len) require_range("--seq-len", *seq_len, 1, 1 << 20);
    NamedPaths taken = named_paths("--tasks", tasks);
    taken.emplace_back("--load", load);
    take_place({"--out", out}, taken);
    take_place({"--report", report}, taken);
  }
};

struct Options {
  EvaluateOptions run;
  PrefixOptions prefix;
  CodecOptions texts;
  PrecisionOptions precision;
};

Options parse_options(int argc, char** argv) {
  Options o;
  o.texts.special = true;  // as lm-eval has it: a text may spell the prefix token
  CommandLine("35_evaluate: scores that no batch changes")
      .read(argc, argv, o.run, o.prefix, o.texts, o.precision);
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

struct Layout {
  const Options& o;
  std::vector<Task> tasks;

  GptConfig gpt = model_in("--load", o.run.load, o.run.seq_len);
  int64_t T = gpt.seq_len, rows = o.run.batch;
  // A text has the bits that it has alone in the window, wherever in a row it lies.
  PackOptions packing{.documents = true,
                      .end_of_text = {},
                      .row_documents = o.run.row_documents,
                      .chunk_length = T};
  // All blocks use the same memory. Logits are those of a row.
  ActivationPlan acts{.dtype = o.precision.dtype(),
                      .sets = 1,
                      .own_input = false,
                      .own_output = false,
                      .logits = 1};
  bool writes = std::ranges::count(tasks, TaskKind::Generate, &Task::kind) > 0;
  BatchSize texts{.window = T,
                  .max_tokens = 0,
                  .prefill = std::min<int64_t>(256, rows* T),
                  .places = rows,
                  .proposed = 0};

  Layout(const Options& o_, std::vector<Task> tasks_) : o(o_), tasks(std::move(tasks_)) {
    if (gpt.has_experts())
      throw UserError("--load {}: a model with experts; legal are models without", o.run.load);
  }
};

// ---- 3. memory ----------------------------------------------------------------------------------

struct Memory {
  const Options& o;
  const Layout& layout;

  const RunOptions& run = o.run.run;
  std::unique_ptr<Device> device = open_device(run);
  Arena arena{device.get()};
  Ctx ctx = make_ctx(run, arena, device.get());
  OpenModel model{arena, layout.gpt, o.precision};
  BundleBatch batch{arena, layout.packing, layout.rows, layout.rows, layout.T};
  Activations acts = alloc_activations(arena, layout.gpt, layout.rows, layout.acts);
  Scorer scorer{arena, layout.gpt, layout.acts.dtype};
  TextCodec codec{o.texts, o.run.load, layout.gpt.vocab};
  Requests requests{codec, o.prefix, layout.T};
  std::optional<Writer> writer;
  PackCounts packed = {};

  Memory(const Options& o_, const Layout& layout_) : o(o_), layout(layout_) {
    model.load(ctx, o.run.load);
    if (layout.writes) writer.emplace(arena, model, layout.texts, layout.acts.dtype);
  }
};

/// The bytes that Memory will take.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const GptConfig& gpt = layout.gpt;
  const int64_t T = layout.T;
  MemoryBytes bytes;
  OpenModel::add_bytes(bytes, gpt, o.precision);
  bytes[Mem::Activation] = BundleBatch::bytes(layout.packing, layout.rows, T) +
                           activation_bytes(gpt, layout.rows, layout.acts) +
                           Scorer::bytes(gpt, layout.acts.dtype);
  bytes[Mem::Workspace] = size_of(layout.acts.dtype) * layout.rows * T * gpt.channels +
                          angle_bytes(gpt) + scratch_bytes(o.run.run);
  if (layout.writes) Writer::add_bytes(bytes, gpt, layout.tasks, layout.texts, layout.acts.dtype);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// The requests of all tasks but those that want a text. @throws UserError that names the line
RequestFile requests_of(const Memory& m) {
  RequestFile file;
  const std::vector<Task>& tasks = m.layout.tasks;
  for (size_t i = 0; i < tasks.size(); ++i) try {
      const Task& task = tasks[i];
      if (task.kind == TaskKind::Rolling)
        for (const Request& window : m.requests.windows(task.answer())) file.add(window, i, 0);
      else if (task.kind != TaskKind::Generate)
        for (size_t c = 0; c < task.choices.size(); ++c)
          file.add(m.requests.pair(task.context, task.behind(task.choices[c])), i, c);
    } catch (const UserError& error) {
      throw UserError("{}: {}", tasks[i].name, std::string(error.what()));
    }
  return file;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Forward of block l, which reads a.stream(l).
void forward_block(Memory& m, const Activations& a, int64_t l) {
  const Ctx& ctx = m.ctx;
  const BlockTensors& p = m.model.w.blocks[l];
  const BlockActs& s = a.blocks[l];
  norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
  attn_forward(ctx, a.product, s.attn, s.norm1, p.attn);
  residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);

  norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
  mlp_forward(ctx, a.product, s.mlp, s.norm2, p.mlp);
  residual_forward(ctx, s.out, s.mid, a.product, p.residual2_b);
}

/// From `tokens` (R,T) to the last norm.
void forward(Memory& m, const Activations& a, Tensor tokens) {
  const auto L = std::ssize(m.model.w.blocks);
  embed_forward(m.ctx, a.embed, tokens, m.model.w.embed);
  for (int64_t l = 0; l < L; ++l) forward_block(m, a, l);
  norm_forward(m.ctx, a.norm, a.stat, a.stream(L), m.model.w.norm);
}

/// Log-likelihoods of all requests. Texts share rows, and rows share passes.
std::vector<LogLikelihood> score(Memory& m, const RequestFile& file) {
  const GptConfig& gpt = m.layout.gpt;
  const int64_t T = m.layout.T;
  std::vector<LogLikelihood> scores(file.pieces.size());
  std::vector<int64_t> lengths;
  for (const Piece& piece : file.pieces) lengths.push_back(piece.length);
  const RowPlan plan = plan_rows(lengths, T, m.layout.packing.most(T), Pack::Ffd);
  for (size_t first = 0; first < plan.size() && stop_signal() == 0; first += m.layout.rows) {
    const auto R = std::min<int64_t>(m.layout.rows, plan.size() - first);
    const std::span<const std::vector<int64_t>> rows(plan.begin() + first, R);
    m.batch.clear();
    for (const std::vector<int64_t>& texts : rows) m.batch.add(file, file.pieces_of(texts));
    m.packed += m.batch.counts();
    const Bundles pass = m.batch.slice(m.ctx, 0, R);
    const Activations acts = m.acts.first(R);
    m.ctx.documents = pass.documents;
    forward(m, acts, pass.rows.tokens);
    m.ctx.documents = {};
    for (int64_t r = 0; r < R; ++r) {
      const std::span learned(pass.rows.targets.slice(r, 1).data<int32_t>(), T);
      const std::vector<LogLikelihood> of_row =
          m.scorer.score(m.ctx, acts.logits.view({T, gpt.padded_vocab}),
                         acts.norm.slice(r, 1).view({T, gpt.channels}), m.model.w.head_w, learned,
                         file.scored_in(rows[r]));
      for (size_t i = 0; i < of_row.size(); ++i) scores[rows[r][i]] = of_row[i];
    }
  }
  return scores;
}

std::vector<Outcome> evaluate(Memory& m) {
  const std::vector<Task>& tasks = m.layout.tasks;
  std::vector<Outcome> outcomes(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i)
    if (tasks[i].kind != TaskKind::Generate) outcomes[i].of.resize(tasks[i].choices.size());
  const RequestFile file = requests_of(m);
  const std::vector<LogLikelihood> scores = score(m, file);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i].sum))
      throw NotDone(
          fmt::format("{}: a log-likelihood is {}", tasks[file.task[i]].name, scores[i].sum));
    outcomes[file.task[i]].of[file.choice[i]] += scores[i];
  }
  if (m.writer) m.writer->write(m.ctx, m.codec, m.requests, m.o.texts, tasks, outcomes);
  return outcomes;
}

// ---- 6. report ----------------------------------------------------------------------------------

nlohmann::json report_of(const Layout& layout, const MemoryBytes& predicted, const Memory& m,
                         const std::vector<FileScores>& files) {
  nlohmann::json report{
      {"chapter", "35_evaluate"},      {"window", layout.T},
      {"shots", layout.o.run.shots},   {"memory", {memory_json(0, predicted, m.arena.peak())}},
      {"texts", m.packed.pieces},      {"rows", m.packed.rows},
      {"positions", m.packed.trained}, {"padded", m.packed.padded}};
  for (size_t i = 0; i < files.size(); ++i)
    report["files"].push_back({{"tasks", layout.o.run.tasks[i]}, {"scores", to_json(files[i])}});
  return report;
}

void run(const Options& o) {
  const Layout layout(o, read_tasks(o.run.tasks, o.run.shots));
  const MemoryBytes predicted = predict(o, layout);
  std::optional<OutputFile> out;
  if (!o.run.out.empty()) out.emplace(o.run.out, "--out");
  Memory m(o, layout);
  const StopSignals signals;
  const std::vector<Outcome> outcomes = evaluate(m);
  if (const int signal = stop_signal())
    return end_with({fmt::format("{}: no scores", signal_name(signal)), 128 + signal});
  if (out) {
    for (size_t i = 0; i < outcomes.size(); ++i)
      out->write(json_line(layout.tasks[i], outcomes[i]));
    out->commit();
  }
  const std::vector<FileScores> files = sum_up(layout.tasks, outcomes);
  for (size_t i = 0; i < files.size(); ++i)
    for (const auto& [name, ratio] : files[i])
      fmt::print("{:32} {:16} {:.6g} ± {:.2g}\n", o.run.tasks[i], name, ratio.value(),
                 ratio.error());
  if (!o.run.report.empty())
    write_file(o.run.report, "--report",
               json_text(report_of(layout, predicted, m, files), 2) + "\n");
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] { ladder::run(ladder::parse_options(argc, argv)); });
}
