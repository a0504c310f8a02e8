// Where the answers of a step come from: the model draws them, a file has them, or --data.
//
// The weights that learn also write, by the decoder of chapter 31. No key outlives a step: each
// answer begins with an empty place of the cache, so its keys are those of the present weights.
// Answers to one prompt copy the prompt's keys from each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/21_moe/balance.h"
#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/cache.h"
#include "chapters/31_generate/decode.h"
#include "chapters/31_generate/draw.h"
#include "chapters/31_generate/open.h"
#include "chapters/37_rl/rl.h"
#include "chapters/37_rl/rollout.h"
#include "common/comm/comm.h"
#include "common/run/text_codec.h"

namespace ladder {

/// Lets answers grow. It reads the weights that learn.
class TextSampler {
 public:
  TextSampler(Arena& arena, const GptConfig& gpt, const GptTensors& weights, const TextCodec& codec,
              const DrawOptions& draw, const BatchSize& size, Dtype dtype)
      : codec_(codec),
        balance_(arena, gpt, {}),
        cache_(arena, gpt, size.places, size.window, dtype),
        decoder_(arena, gpt, weights, balance_, &cache_, size.pass(), dtype),
        options_(draw),
        batch_(arena, codec, draw_, {}, size) {
    batch_.temperature = static_cast<float>(draw.temperature);
  }
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, const BatchSize& size,
                        Dtype dtype) {
    Decoder::add_bytes(bytes, gpt, size.pass(), dtype, true);
    bytes[Mem::Activation] +=
        KvCache::bytes(gpt, size.places, size.window, dtype) + AnswerBatch::bytes(size);
    bytes[Mem::Optim] += Balance::bytes(gpt);
  }

  /// Lets answers grow until all have ended; then gives each its reward.
  /// @param greedy each token is the most likely one
  void write(const Ctx& ctx, std::vector<Scored>& answers, const std::vector<RlTask>& tasks,
             bool greedy) {
    draw_ = Draw(greedy ? DrawOptions{.temperature = 0} : options_);
    batch_.grow(ctx, decoder_, cache_, answers);
    for (Scored& answer : answers) {
      const bool ended = answer.end == End::Token;
      const auto said = answer.drawn();
      const std::string text = codec_.decode(said.first(said.size() - (ended ? 1 : 0)));
      answer.reward = reward_of(text, tasks[static_cast<size_t>(answer.line)].answer, ended);
    }
  }

 private:
  const TextCodec& codec_;
  Balance balance_;
  KvCache cache_;
  Decoder decoder_;
  DrawOptions options_;
  Draw draw_{options_};
  AnswerBatch batch_;
};

class AnswerSource {
  AnswerLimits limits_;  // members below use it

 public:
  /// @param weights those that learn @throws UserError
  AnswerSource(Arena& arena, const RlOptions& o, const RunOptions& run, const GptConfig& gpt,
               const GptTensors& weights, const PrecisionOptions& precision, Comm& comm)
      : limits_{.tasks = o.tasks, .vocab = gpt.vocab, .T = gpt.seq_len},
        o_(o),
        comm_(comm),
        codec_(o.codec(run), o.base, gpt.vocab),
        file_(o.rollouts, o.role == RolloutRole::Train, comm.rank() == 0, limits_) {
    if (o.objective.of_pairs())
      pairs = answers_to(o, numbers_in({0, std::ssize(o.tasks)}), 2);
    else
      sampler_.emplace(arena, gpt, weights, codec_, o.draw(run), o.texts(gpt.seq_len),
                       precision.dtype());
    if (o.objective.kl != 0) base.emplace(arena, gpt, precision);
  }
  static void add_bytes(MemoryBytes& bytes, const RlOptions& o, const GptConfig& gpt,
                        const PrecisionOptions& precision) {
    if (o.objective.kl != 0) OpenModel::add_bytes(bytes, gpt, precision);
    if (!o.objective.of_pairs())
      TextSampler::add_bytes(bytes, gpt, o.texts(gpt.seq_len), precision.dtype());
  }

  Rollout rollout{limits_};       ///< what the step trains on
  std::vector<Scored> pairs;      ///< DPO: all of --data
  std::optional<OpenModel> base;  ///< --kl: the weights of --base beside those that learn

  /// DPO: the log-probabilities that ranks have given to pairs come to all of them.
  void exchange_pairs() {
    std::erase_if(pairs, [](const Scored& answer) { return answer.logprobs.empty(); });
    pairs = all_of_ranks(comm_, pairs, limits_);
    sort_answers(pairs, numbers_in({0, std::ssize(o_.tasks)}), 2);
  }

  /// Fills the rollout if one begins with this step. @param own which of its `batch` prompts this
  /// rank draws answers to @throws UserError
  void next(const Ctx& ctx, int64_t step, int64_t batch, Range own) {
    if (step % o_.updates != 0) return rollout.check(batch * o_.group());
    const int64_t number = step / o_.updates;
    const std::vector<int64_t> lines = o_.lines(number, batch);
    if (!sampler_) {
      rollout.answers.clear();
      for (const int64_t line : lines)
        rollout.answers.insert(rollout.answers.end(), pairs.begin() + 2 * line,
                               pairs.begin() + 2 * line + 2);
    } else if (o_.role == RolloutRole::Train) {
      rollout.answers = file_.of(number);
    } else {
      const std::span prompts =
          std::span(lines).subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size()));
      std::vector<Scored> answers = answers_to(o_, prompts, o_.group(), number);
      sampler_->write(ctx, answers, o_.tasks, /*greedy=*/false);
      rollout.answers = all_of_ranks(comm_, answers, limits_);
    }
    sort_answers(rollout.answers, lines, o_.group());
    file_.add(rollout.answers);
  }

  /// GRPO: the share of tasks that are held out and that the greedy answer fails.
  float failed(const Ctx& ctx) {
    std::vector<int64_t> own;
    for (const int64_t line : o_.held_out())
      if (line % comm_.size() == comm_.rank()) own.push_back(line);
    std::vector<Scored> answers = answers_to(o_, own, 1);
    sampler_->write(ctx, answers, o_.tasks, /*greedy=*/true);
    int64_t passed = 0;
    for (const Scored& answer : answers) passed += answer.reward;
    comm_.all_reduce({.ptr = &passed, .dtype = Dtype::I64, .shape = {1}});
    return 1 - static_cast<float>(passed) / static_cast<float>(o_.held_out().size());
  }

  /// Ends --rollouts. @throws UserError
  void commit() { file_.commit(); }

 private:
  const RlOptions& o_;
  Comm& comm_;
  TextCodec codec_;
  RolloutFile file_;
  std::optional<TextSampler> sampler_;  ///< GRPO
};

}  // namespace ladder
