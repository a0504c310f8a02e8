// The flags of this chapter, and what a step does with them: which tasks it takes, and what each
// token of their answers weighs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "chapters/26_packing/plan.h"
#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/draw.h"
#include "chapters/36_finetune/base.h"
#include "chapters/36_finetune/chat.h"
#include "chapters/37_rl/objective.h"
#include "chapters/37_rl/rollout.h"
#include "common/error.h"
#include "common/names.h"
#include "common/own_place.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/run/text_codec.h"
#include "common/run/tokenizer.h"
#include "kernels/narrow.h"

namespace ladder {

/// What a program does with a rollout.
enum class RolloutRole : uint8_t { Both, Sample, Train };
constexpr auto names_of(RolloutRole) { return std::array{"both", "sample", "train"}; }

struct RlOptions {
  Objective objective;
  std::string base, rollouts;
  RolloutRole role = RolloutRole::Both;
  int64_t answers = 8, max_tokens = 128, updates = 1;
  int64_t places = 8;
  double temperature = 1;
  int32_t end = 0;                 ///< the token that ends an answer, after check()
  std::vector<RlTask> tasks = {};  ///< the lines of --data, after check()

  int64_t group() const { return objective.of_pairs() ? 2 : answers; }
  /// A bundle is a prompt with its answers, a row for each; the keys have the window's chunks.
  PackOptions packing(int64_t T) const {
    return {.documents = true,
            .end_of_text = {},
            .unpacked = true,
            .row_documents = group(),
            .chunk_length = T};
  }
  BatchSize texts(int64_t T) const {
    return {.window = T,
            .max_tokens = max_tokens,
            .prefill = std::min<int64_t>(256, places * T),
            .places = places,
            .proposed = 0};
  }
  DrawOptions draw(const RunOptions& run) const {
    return {.seed = run.seed, .temperature = temperature};
  }
  CodecOptions codec(const RunOptions& run) const {
    CodecOptions codec;
    codec.tokenizer = run.tokenizer;
    codec.end = end;
    return codec;
  }
  /// The last tenth of the tasks is held out.
  int64_t trained() const { return std::ssize(tasks) - std::ssize(tasks) / 10; }
  /// Lines of the `batch` tasks of a rollout. They come in the order of the file, again and again.
  std::vector<int64_t> lines(int64_t rollout, int64_t batch) const {
    std::vector<int64_t> all;
    for (int64_t b = 0; b < batch; ++b) all.push_back((rollout * batch + b) % trained());
    return all;
  }
  std::vector<int64_t> held_out() const { return numbers_in({trained(), std::ssize(tasks)}); }
  int64_t divisor(const Rollout& rollout) const {
    return loss_divisor(objective, std::ssize(rollout.answers), rollout.tokens(), max_tokens);
  }
};

/// Takes model, tokenizer and tasks, and gives them to RunOptions, before these are checked.
class RlFlags {
 public:
  RlFlags(RlOptions& own, RunOptions& run) : own_(own), run_(run) {}

  void add_to(CommandLine& line) {
    Objective& o = own_.objective;
    line.group("37_rl");
    line.add("--base", own_.base, "folder of the model to begin with, and the reference of DPO");
    line.add("--loss", o.loss, "grpo: --data has a checker's answers; all others: pairs");
    line.add("--beta", o.beta, "DPO, IPO: the larger, the nearer to --base the model stays");
    line.add("--group", own_.answers, "GRPO: how many answers are drawn to each prompt");
    line.add("--draw-temperature", own_.temperature, "logits are divided by it, in both programs");
    line.add("--max-tokens", own_.max_tokens, "an answer ends when it has so many tokens");
    line.add("--advantage", o.advantage, "std: over the group's standard deviation; mean: is not");
    line.add("--updates", own_.updates, "steps with each rollout");
    line.add("--clip-low", o.clip_low, "a ratio below 1 minus this has no gradient if A < 0");
    line.add("--clip-high", o.clip_high, "nor has one above 1 plus this if A > 0");
    line.add("--kl", o.kl, "weight of the distance from --base in the loss");
    line.add("--rollouts", own_.rollouts, "file of answers with their log-probabilities");
    line.add("--role", own_.role,
             "both: draws, trains, writes the file; sample: writes a rollout; train: reads them",
             {.needs = {"--rollouts"}});
    line.add("--places", own_.places, "how many answers grow together; changes no bit");
  }
  /// @throws UserError
  void check() {
    if (own_.base.empty()) throw UserError("--base is missing: a checkpoint of any chapter");
    if (!run_.data.ends_with(".jsonl"))
      throw UserError("--data {}: legal are lines of JSON, in a file named *.jsonl", run_.data);
    check_numbers();
    take_base_model(run_, own_.base);
    const GptConfig gpt = run_.gpt();
    if (gpt.has_experts())
      throw UserError("--base {}: a model with experts; legal is one without", own_.base);
    take_tasks(gpt);
    NamedPaths taken{{"--data", run_.data}, {"--base", own_.base}, {"--load", run_.load}};
    if (own_.role != RolloutRole::Train) take_place({"--rollouts", own_.rollouts}, taken);
  }

 private:
  void check_numbers() const {
    const Objective& o = own_.objective;
    for (const auto& [flag, value, least, most] :
         {std::tuple{"--beta", o.beta, 1e-6, 1e6},
          {"--kl", o.kl, 0.0, 1e6},
          {"--clip-low", o.clip_low, 0.0, 1.0},
          {"--clip-high", o.clip_high, 0.0, 1e6},
          {"--draw-temperature", own_.temperature, 1e-3, 1e6}})
      if (!(value >= least && value <= most))
        throw UserError("{} must be from {} to {}, not {}", flag, least, most, value);
    for (const auto& [flag, value, least] : {std::tuple{"--group", own_.answers, 2},
                                             {"--max-tokens", own_.max_tokens, 1},
                                             {"--updates", own_.updates, 1},
                                             {"--places", own_.places, 1}})
      require_range(flag, value, least, 1 << 16);
    if (!o.of_pairs()) return;
    if (own_.updates != 1 || own_.role != RolloutRole::Both || !own_.rollouts.empty())
      throw UserError(
          "--loss {}: answers stand in --data; legal are no --updates, --role, --rollouts",
          to_string(o.loss));
  }

  void take_tasks(const GptConfig& gpt) {
    require_range("--group", own_.group(), 2, gpt.seq_len);
    if (run_.plan_only) return;
    run_.text_tokenizer = find_tokenizer(run_.tokenizer, own_.base);
    const Tokenizer* tokenizer = run_.text_tokenizer ? &run_.text_tokenizer->tokenizer : nullptr;
    if (tokenizer ? tokenizer->vocab() > gpt.vocab : gpt.vocab != 256)
      throw UserError(
          "--base {}: a vocabulary of {}; legal is that of its tokenizer, or 256 without one",
          own_.base, gpt.vocab);
    Speller speller(tokenizer, Template::Auto);
    own_.end = speller.end();
    own_.tasks = read_rl_tasks(run_.data, speller, own_.objective.of_pairs(), gpt.seq_len);
    if (own_.tasks.size() < 10 || own_.trained() < run_.batch)
      throw UserError(
          "--data {}: {} lines; legal are ten or more, of which the last tenth validates, and "
          "before it at least --batch {}",
          run_.data, own_.tasks.size(), run_.batch);
    run_.file = std::make_shared<const InputFile>(run_.data, "--data");  // is not read as a text
  }

  RlOptions& own_;
  RunOptions& run_;
};

/// Answers are no text whose bytes count: a validation has no bits per byte.
inline LossTargets no_bytes() {
  return {[](int64_t, int64_t) { return TargetCount{}; }, [] { return TargetCount{}; }};
}

/// The prompts of these lines, each `count` times, with room for answers; DPO: with both answers.
inline std::vector<Scored> answers_to(const RlOptions& o, std::span<const int64_t> lines,
                                      int64_t count, int64_t rollout = 0) {
  std::vector<Scored> answers;
  for (const int64_t line : lines)
    for (int64_t number = 0; number < count; ++number) {
      const RlTask& task = o.tasks[static_cast<size_t>(line)];
      Scored answer;
      answer.line = line;
      answer.number = number;
      answer.step = rollout;
      answer.tokens = task.prompt;
      answer.prompt = std::ssize(task.prompt);
      if (o.objective.of_pairs()) {
        const std::vector<int32_t>& text = task.pair[static_cast<size_t>(number)];
        answer.tokens.insert(answer.tokens.end(), text.begin(), text.end());
      }
      answers.push_back(std::move(answer));
    }
  return answers;
}

/// An answer in its row of the micro-batch: position i reads token i and learns token i + 1.
struct AnswerRow {
  Scored* answer;
  const float* losses;           ///< (T)
  float* weights;                ///< (T)
  std::vector<float> base = {};  ///< log p under --base, of each token of the answer

  int64_t first() const { return answer->prompt - 1; }
  int64_t end() const { return std::ssize(answer->tokens) - 1; }
  std::vector<float> log_probs() const {
    std::vector<float> all;
    for (int64_t i = first(); i < end(); ++i) all.push_back(-losses[i]);
    return all;
  }
  AnswerSums sums() const {
    AnswerSums sums{.tokens = end() - first()};
    for (const float log_p : log_probs()) sums.now += log_p;
    for (const float log_p : answer->logprobs) sums.base += log_p;
    return sums;
  }
  void weigh(double weight) const {
    std::fill(weights + first(), weights + end(), static_cast<float>(weight));
  }
};

/// A loss and a weight for each token of a micro-batch, and what answers do to the step.
struct AnswerTensors {
  Tensor losses, weights;     ///< (R,T) F32
  Tensor counts, own_counts;  ///< (answers,3) F32: of the step, and of this rank

  AnswerTensors(Arena& arena, int64_t R, int64_t T, int64_t all, int64_t own)
      : losses(of(arena, {R, T})),
        weights(of(arena, {R, T})),
        counts(of(arena, {all, AnswerCounts::kNumbers})),
        own_counts(of(arena, {own, AnswerCounts::kNumbers})) {}
  static Tensor of(Arena& arena, Shape shape) {
    return arena.shared(Mem::Activation, "answers", Dtype::F32, shape);
  }
  static int64_t bytes(int64_t R, int64_t T, int64_t all, int64_t own) {
    return 4 * (2 * R * T + AnswerCounts::kNumbers * (all + own));
  }

  /// losses (R T)
  Tensor flat_losses() const { return losses.view({losses.size()}); }

  /// Answers have rows one after the other.
  std::vector<AnswerRow> rows_of(std::span<Scored> answers) const {
    std::vector<AnswerRow> rows;
    for (Scored& answer : answers) {
      const int64_t at = std::ssize(rows) * losses.dim(1);
      rows.push_back({&answer, losses.data<float>() + at, weights.data<float>() + at});
    }
    return rows;
  }
};

/// Weights and losses of a group of answers to one prompt. @param losses (G) @param counts (G)
inline void weigh_group(const Objective& o, std::span<const AnswerRow> group, double scale,
                        float* losses, AnswerCounts* counts) {
  std::vector<int64_t> rewards;
  for (const AnswerRow& row : group) rewards.push_back(row.answer->reward);
  const std::vector<double> advantage = advantages(rewards, o.advantage);
  for (size_t a = 0; a < group.size(); ++a) {
    const AnswerRow& row = group[a];
    const std::vector<float> now = row.log_probs();
    const AnswerTerm term = weigh_answer(o, advantage[a], now, row.answer->logprobs, row.base,
                                         scale, std::span(row.weights + row.first(), now.size()));
    losses[a] = term.loss;
    counts[a] = term.counts;
  }
}

/// The same of a pair. Its loss stands at the better answer.
inline void weigh_pair(const Objective& o, std::span<const AnswerRow> pair, double scale,
                       float* losses, AnswerCounts* counts) {
  const PairTerm term = dpo_pair(o, pair[0].sums(), pair[1].sums());
  pair[0].weigh(term.chosen * scale);
  pair[1].weigh(term.rejected * scale);
  losses[0] = static_cast<float>(term.loss);
  losses[1] = -0.0F;
  counts[0] = {.distance = static_cast<float>(term.h)};
  counts[1] = {};
}

/// Calls f(first, count, weight) for runs of tokens with one weight. Tokens that are not learned
/// belong to any run. @param weights (R,T) @param targets (R,T)
template <class F>
void for_runs(Tensor weights, Tensor targets, F&& f) {
  const float* weight = weights.data<float>();
  const int32_t* target = targets.data<int32_t>();
  int64_t first = 0, learned = -1;  // the run's first token, and its last one that is learned
  for (int64_t i = 0; i < targets.size(); ++i) {
    if (target[i] == kIgnore) continue;
    if (learned >= 0 && weight[i] != weight[learned]) {
      f(first, i - first, weight[learned]);
      first = i;
    }
    learned = i;
  }
  f(first, targets.size() - first, learned < 0 ? 0 : weight[learned]);
}

/// All groups of a micro-batch. @param losses one for each turn @param counts (rows,3)
inline void weigh(const RlOptions& o, std::span<const AnswerRow> rows, double scale, Tensor losses,
                  Tensor counts) {
  const int64_t G = o.group(), groups = std::ssize(rows) / G, turns = losses.size() / groups;
  const auto weigh_one = o.objective.of_pairs() ? weigh_pair : weigh_group;
  std::fill_n(losses.data<float>(), losses.size(), -0.0F);  // turns without an answer
  for (int64_t g = 0; g < groups; ++g)
    weigh_one(o.objective, rows.subspan(static_cast<size_t>(g * G), static_cast<size_t>(G)), scale,
              losses.data<float>() + g * turns,
              reinterpret_cast<AnswerCounts*>(counts.ptr) + g * G);
}

/// What --report and --trace say of a step, from the counts of all answers.
inline std::map<std::string, double> step_numbers(const RlOptions& o, const Rollout& rollout,
                                                  Tensor counts) {
  const std::span all(reinterpret_cast<const AnswerCounts*>(counts.ptr), rollout.answers.size());
  double distance = 0, clipped = 0, reward = 0, cut = 0, surprise = 0;
  float ratio = 0;
  for (size_t a = 0; a < all.size(); ++a) {
    const Scored& answer = rollout.answers[a];
    ratio = larger(ratio, all[a].ratio);
    distance += all[a].distance;
    clipped += all[a].clipped;
    reward += static_cast<double>(answer.reward);
    cut += answer.end == End::Token ? 0 : 1;
    for (const float log_p : answer.logprobs) surprise -= log_p;
  }
  const auto n = static_cast<double>(all.size()), tokens = static_cast<double>(rollout.tokens());
  if (o.objective.of_pairs()) return {{"margin", distance / (n / 2)}};
  return {{"ratio_max", ratio},          {"kl", distance / tokens}, {"clipped", clipped / tokens},
          {"reward", reward / n},        {"cut", cut / n},          {"length", tokens / n},
          {"entropy", surprise / tokens}};
}

}  // namespace ladder
