// Writer: texts up to a stop, by the decoder of chapter 31. The most likely token is always taken.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/cache.h"
#include "chapters/31_generate/decode.h"
#include "chapters/31_generate/draw.h"
#include "chapters/31_generate/open.h"
#include "chapters/35_evaluate/requests.h"
#include "chapters/35_evaluate/scores.h"
#include "chapters/35_evaluate/tasks.h"
#include "common/error.h"
#include "common/run/text_codec.h"

namespace ladder {

class Writer {
 public:
  /// @param size with max_tokens 0: each task has its own
  Writer(Arena& arena, const OpenModel& model, const BatchSize& size, Dtype dtype)
      : arena_(arena),
        size_(size),
        cache_(arena, model.config, size.places, size.window, dtype),
        decoder_(arena, model.config, model.w, model.balance, &cache_, size.pass(), dtype) {}
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, const std::vector<Task>& tasks,
                        const BatchSize& size, Dtype dtype) {
    std::set<How> groups;
    for (const Task& task : tasks)
      if (task.kind == TaskKind::Generate) groups.emplace(task.until, task.max_tokens);
    Decoder::add_bytes(bytes, gpt, size.pass(), dtype, true);
    bytes[Mem::Activation] += KvCache::bytes(gpt, size.places, size.window, dtype) +
                              std::ssize(groups) * AnswerBatch::bytes(size);
  }

  /// Fills the texts of the outcomes. @throws UserError that names the line
  void write(const Ctx& ctx, const TextCodec& codec, const Requests& requests, CodecOptions texts,
             const std::vector<Task>& tasks, std::vector<Outcome>& outcomes) {
    std::map<How, std::deque<Answer>> groups;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Task& task = tasks[i];
      if (task.kind != TaskKind::Generate) continue;
      if (task.max_tokens >= size_.window)
        throw UserError("{}: max_tokens {}; legal are 1 to {}, for the window is one more",
                        task.name, task.max_tokens, size_.window - 1);
      const std::vector<int32_t> prompt = requests.prompt(task.context, task.max_tokens);
      groups[{task.until, task.max_tokens}].push_back(
          {.line = static_cast<int64_t>(i), .tokens = prompt, .prompt = std::ssize(prompt)});
    }
    const Draw greedy({.temperature = 0});
    for (auto& [how, answers] : groups) {
      texts.stop = how.first;
      size_.max_tokens = how.second;
      AnswerBatch batch(arena_, codec, greedy, texts, size_);
      batch.grow(ctx, decoder_, cache_, answers, /*stops=*/true);
      for (const Answer& answer : answers)
        outcomes[static_cast<size_t>(answer.line)].text = answer.text;
    }
  }

 private:
  /// Stops, and the most tokens. Texts grow together that have the same.
  using How = std::pair<std::vector<std::string>, int64_t>;

  Arena& arena_;
  BatchSize size_;
  KvCache cache_;
  Decoder decoder_;
};

}  // namespace ladder
