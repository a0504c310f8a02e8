// 31_generate: text from a checkpoint, with cached keys and values. It trains nothing.

#include <cstdio>
#include <deque>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/draw.h"
#include "chapters/31_generate/open.h"
#include "chapters/31_generate/proof/agreement.h"
#include "chapters/31_generate/speculate.h"
#include "common/input_file.h"
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

struct GenerateOptions {
  RunOptions run;  ///< --backend and --threads
  std::string load, prompt, prompts, out, report;
  std::optional<int64_t> seq_len;
  int64_t answers = 1, max_tokens = 128, batch = 8, prefill = 256;
  bool no_cache = false;

  void add_to(CommandLine& line) {
    line.group("31_generate");
    line.add("--load", load, "the model: a checkpoint of any chapter, or a Hugging Face directory");
    line.add("--prompt", prompt,
             "the text to continue; without it, each line that you type is a prompt");
    line.add("--prompts", prompts, "a file with a prompt on each line: {\"prompt\": \"...\"}",
             {.needs = {"--out"}});
    line.add("--out", out,
             "a file for the answers, one on each line: {\"text\": ..., \"logprobs\": ...}");
    line.add("--answers", answers, "how many answers to write to each prompt");
    line.add("--max-tokens", max_tokens, "an answer ends when it has so many tokens");
    line.add("--seq-len", seq_len,
             "the window: the most tokens of prompt and answer together; another window changes "
             "the last bits",
             {.shown_default = "that of the model"});
    line.add("--batch", batch, "how many answers grow together; changes no text");
    line.add("--prefill-tokens", prefill,
             "how many tokens of prompts are computed at a time; changes no text");
    line.add("--no-cache", no_cache,
             "computes the whole window for each token: the same texts, slowly");
    line.add("--backend", run.backend, backend_names());
    line.add("--threads", run.threads, "how many threads compute", {.shown_default = "the cores"});
    line.add("--report", report, "a file for times, bytes and counts, as JSON");
  }
  /// @throws UserError
  void check() const {
    if (load.empty()) throw UserError("--load is missing: a checkpoint of any chapter");
    if (!prompt.empty() && !prompts.empty())
      throw UserError("--prompt and --prompts; legal is one of them");
    require_range("--answers", answers, 1, 1 << 20);
    require_range("--max-tokens", max_tokens, 1, 1 << 20);
    require_range("--batch", batch, 1, 1 << 12);
    require_range("--prefill-tokens", prefill, 1, 1 << 20);
    require_range("--threads", run.threads.value_or(1), 1, 1 << 12);
    if (seq_len) require_range("--seq-len", *seq_len, 1, 1 << 20);
    NamedPaths taken{{"--prompts", prompts}, {"--load", load}};
    take_place({"--out", out}, taken);
    take_place({"--report", report}, taken);
  }
};

struct Options {
  GenerateOptions run;
  CodecOptions texts;
  DrawOptions draw;
  DraftOptions draft;
  FixedRowsOptions fixed;
  PrecisionOptions precision;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("31_generate: text with cached keys and values")
      .read(argc, argv, o.run, o.fixed, o.texts, o.draw, o.draft, o.precision);
  if (o.run.no_cache && !o.draft.load.empty())
    throw UserError("--no-cache with --draft; legal is one of them");
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

struct Layout {
  const Options& o;

  GptConfig gpt = model_in("--load", o.run.load, o.run.seq_len);
  std::optional<GptConfig> draft = draft_model();
  Dtype dtype = o.precision.dtype();
  BatchSize batch{.window = gpt.seq_len,
                  .max_tokens = o.run.max_tokens,
                  .prefill = std::min(o.run.prefill, o.run.batch* gpt.seq_len),
                  .places = o.run.batch,
                  .proposed = o.draft.most(),
                  .whole = o.run.no_cache};

  explicit Layout(const Options& o_) : o(o_) {
    o.fixed.apply(batch, gpt, on_device(o.run.run.backend));
  }

 private:
  std::optional<GptConfig> draft_model() const {
    if (o.draft.load.empty()) return std::nullopt;
    const GptConfig config = model_in("--draft", o.draft.load, gpt.seq_len);
    if (config.vocab != gpt.vocab)
      throw UserError("--draft {}: a vocabulary of {}; legal is that of --load, {}", o.draft.load,
                      config.vocab, gpt.vocab);
    return config;
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
  Generator target{arena, layout.gpt, o.precision, layout.batch, layout.batch.pass()};
  std::optional<Generator> small;
  TextCodec codec{o.texts, o.run.load, layout.gpt.vocab};
  Draw draw{o.draw}, draft_draw{o.draw};
  Agreement agreement;
  AnswerBatch batch{arena, codec, draw, o.texts, layout.batch};
  std::optional<Draft> draft;

  Memory(const Options& o_, const Layout& layout_) : o(o_), layout(layout_) {
    target.load(ctx, o.run.load);
    if (!layout.draft) return;
    small.emplace(arena, *layout.draft, o.precision, layout.batch, Draft::pass(layout.batch));
    small->load(ctx, o.draft.load);
    draft.emplace(small->decoder, draft_draw, codec.vocab(), layout.batch);
    if (!o.run.report.empty()) agreement.watch(draft_draw, draw);
  }
};

/// The bytes that Memory will take. The cache has 2 L NKV HS numbers for each token of a place.
MemoryBytes predict(const Options& o, const Layout& layout) {
  MemoryBytes bytes;
  Generator::add_bytes(bytes, layout.gpt, o.precision, layout.batch, layout.batch.pass());
  if (layout.draft)
    Generator::add_bytes(bytes, *layout.draft, o.precision, layout.batch,
                         Draft::pass(layout.batch));
  bytes[Mem::Activation] += AnswerBatch::bytes(layout.batch);
  bytes[Mem::Workspace] += scratch_bytes(o.run.run);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// Lines of {"prompt": "..."}. Other fields are ignored. @throws UserError that names the line
std::vector<std::string> read_prompts(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  std::istringstream lines(read_small_file(path, kMostBytes, "--prompts"));
  std::vector<std::string> prompts;
  for (std::string line; std::getline(lines, line);) try {
      prompts.push_back(parse_json(line).at("prompt").get<std::string>());
    } catch (const std::exception&) {
      throw UserError("--prompts {}: line {} is not {{\"prompt\": \"...\"}}", path,
                      prompts.size() + 1);
    }
  if (prompts.empty()) throw UserError("--prompts {}: holds no prompt", path);
  return prompts;
}

/// The answers to come: to each prompt as many as were asked for. @param line of the first prompt
std::deque<Answer> answers_to(const Options& o, const Memory& m, int64_t line,
                              const std::vector<std::string>& prompts) {
  std::deque<Answer> answers;
  for (const std::string& prompt : prompts) {
    const std::vector<int32_t> tokens = m.codec.encode(prompt);
    const int64_t n = std::ssize(tokens), T = m.layout.gpt.seq_len;
    if (n >= T)
      throw UserError("prompt {} has {} tokens, and the window {}; legal are {}", line + 1, n, T,
                      T - 1);
    for (int64_t number = 0; number < o.run.answers; ++number)
      answers.push_back({.line = line, .number = number, .tokens = tokens, .prompt = n});
    ++line;
  }
  return answers;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Seconds of passes with tokens of prompts, and of others.
struct Seconds {
  double prefill = 0, decode = 0;
  int64_t drawn = 0;  ///< tokens of the others
};

/// Lets all answers grow until they end. A signal stops it after a pass.
void generate(Memory& m, std::deque<Answer>& answers, Seconds& seconds) {
  const KvCache* cache = m.target.cache ? &*m.target.cache : nullptr;
  auto next = answers.begin();
  const auto busy = [&] {
    while (next != answers.end() && m.batch.admit(m.ctx, cache, *next)) ++next;
    return std::ranges::any_of(m.batch.places(), [](const Placed& p) { return p.answer; });
  };
  while (stop_signal() == 0 && busy()) {
    const int64_t begin = now_ns(), prefilled = m.batch.counts().prefilled;
    const int64_t drawn = m.batch.counts().drawn;
    if (m.draft) m.draft->propose(m.ctx, m.batch.places());
    const std::vector<TextRows> pass = m.batch.rows();
    m.batch.take(m.ctx, pass, m.target.decoder.forward(m.ctx, pass));
    const double took = static_cast<double>(now_ns() - begin) * 1e-9;
    if (m.batch.counts().prefilled > prefilled) {
      seconds.prefill += took;
    } else {
      seconds.decode += took;
      seconds.drawn += m.batch.counts().drawn - drawn;
    }
  }
}

/// Prints one answer as it comes.
void answer_on_screen(const Options& o, Memory& m, int64_t line, const std::string& prompt,
                      Seconds& seconds) {
  std::deque<Answer> answers = answers_to(o, m, line, {prompt});
  size_t shown = 0;
  if (answers.size() == 1)
    m.batch.watch = [&](const Answer& answer) {
      fmt::print("{}", answer.text.substr(std::min(shown, answer.text.size())));
      std::fflush(stdout);
      shown = answer.text.size();
    };
  generate(m, answers, seconds);
  for (const Answer& answer : answers) fmt::print("{}\n", answers.size() == 1 ? "" : answer.text);
}

// ---- 6. report ----------------------------------------------------------------------------------

double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

nlohmann::json report_of(const Layout& layout, const MemoryBytes& predicted, const Memory& m,
                         const Seconds& seconds) {
  const BatchCounts& c = m.batch.counts();
  nlohmann::json report = m.agreement.report(c, layout.o.draft.tokens);
  report.update(
      {{"chapter", "31_generate"},
       {"window", layout.gpt.seq_len},
       {"memory", nlohmann::json::array({memory_json(0, predicted, m.arena.peak())})},
       {"passes", c.passes},
       {"padded", c.padded(layout.batch)},
       {"prefilled", c.prefilled},
       {"shared", c.shared},
       {"drawn", c.drawn},
       {"prefill_tokens_per_second", ratio(static_cast<double>(c.prefilled), seconds.prefill)},
       {"decode_tokens_per_second", ratio(static_cast<double>(seconds.drawn), seconds.decode)}});
  return report;
}

void tell_speed(const nlohmann::json& r) {
  tell(fmt::format("{} tokens in {} passes; prefill {:.0f} tokens/s, decode {:.1f} tokens/s",
                   r.at("drawn").get<int64_t>(), r.at("passes").get<int64_t>(),
                   r.at("prefill_tokens_per_second").get<double>(),
                   r.at("decode_tokens_per_second").get<double>()));
  if (const double padded = r.at("padded"); padded > 0)
    tell(fmt::format("--fixed-rows: products of {:.1f} times the rows that texts have", padded));
  if (r.at("proposed") > 0) tell(Agreement::text(r));
}

void run(const Options& o) {
  const Layout layout(o);
  const MemoryBytes predicted = predict(o, layout);
  std::vector<std::string> prompts;
  if (!o.run.prompts.empty()) prompts = read_prompts(o.run.prompts);
  std::optional<OutputFile> out;
  if (!o.run.out.empty()) out.emplace(o.run.out, "--out");
  if (out && prompts.empty()) prompts.push_back(o.run.prompt);
  Memory m(o, layout);
  Seconds seconds;
  const StopSignals signals;
  if (out) {
    std::deque<Answer> answers = answers_to(o, m, 0, prompts);
    generate(m, answers, seconds);
    for (const Answer& answer : answers)
      if (answer.end != End::None) out->write(json_line(answer));
    out->commit();
  } else if (!o.run.prompt.empty()) {
    answer_on_screen(o, m, 0, o.run.prompt, seconds);
  } else {
    if (isatty(STDIN_FILENO) == 1) tell("each line is a prompt; Ctrl-D ends");
    std::string text;
    for (int64_t line = 0; stop_signal() == 0 && std::getline(std::cin, text); ++line)
      answer_on_screen(o, m, line, text, seconds);
  }
  const nlohmann::json report = report_of(layout, predicted, m, seconds);
  tell_speed(report);
  if (!o.run.report.empty()) write_file(o.run.report, "--report", json_text(report, 2) + "\n");
  if (const int signal = stop_signal())
    end_with({fmt::format("{}: answers that had not ended are left out", signal_name(signal)),
              128 + signal});
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] { ladder::run(ladder::parse_options(argc, argv)); });
}
