// --base: the model that a run begins with. Its folder says which model it is, and which tokenizer
// its texts have. A --data that is called *.jsonl is read as chats of these tokens. Any other
// --data is read as in chapter 27, without sources.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "chapters/26_packing/plan.h"
#include "chapters/36_finetune/chat.h"
#include "chapters/36_finetune/lora.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "common/run/model_in.h"
#include "common/run/options.h"
#include "common/run/saver.h"
#include "common/save/checkpoint.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {

struct BaseOptions {
  std::string base, merged;
  ChatOptions chat;
  ChatCounts counts = {};                  ///< of --data, after check()
  std::string jinja = {};                  ///< empty: there is no tokenizer
  std::optional<double> temperature = {};  ///< --chat

  bool talks() const { return temperature.has_value(); }  ///< no step is taken
  /// Prints what became of the chats, and puts it into --report.
  void report(Log& log) const {
    if (counts.chats == 0) return;
    log.note(
        fmt::format("{} chats: {} longer than a row were cut, {} without a target left out; {} of "
                    "{} tokens are "
                    "learned",
                    counts.chats, counts.cut, counts.targetless, counts.learned, counts.tokens));
    log.extra()["chats"] = {{"chats", counts.chats},
                            {"cut", counts.cut},
                            {"tokens", counts.tokens},
                            {"learned", counts.learned}};
  }
};

/// The model is that of --base. @throws UserError
inline void take_base_model(RunOptions& run, const std::string& base) {
  const RunOptions unset;
  for (const auto& [given, flag] : {std::pair{run.model != unset.model, "--model"},
                                    {run.layers.has_value(), "--layers"},
                                    {run.heads.has_value(), "--heads"},
                                    {run.channels.has_value(), "--channels"},
                                    {run.vocab.has_value(), "--vocab"},
                                    {run.tied_head, "--tied-head"}})
    if (given)
      throw UserError("{} with --base, which says what the model is; legal is one of them", flag);
  run.found = model_in("--base", base, run.seq_len);
}

/// The flags of this chapter. Their check() runs before the one of RunOptions, and gives model,
/// tokenizer and tokens to RunOptions.
class FinetuneFlags {
 public:
  FinetuneFlags(BaseOptions& own, LoraOptions& lora, PackOptions& packing, RunOptions& run)
      : own_(own), lora_(lora), packing_(packing), run_(run) {}

  void add_to(CommandLine& line) {
    line.group("36_finetune");
    line.add(
        "--base", own_.base,
        "folder of the model to begin with: a checkpoint of any chapter, or one of Hugging Face");
    line.add("--save-merged", own_.merged,
             "directory for the whole model at the end, with the adapters added to its weights",
             {.needs = {"--lora-rank", "--load"}});
    line.add("--chat", own_.temperature,
             "takes no step: the model answers each line that you type, at this temperature; 0: "
             "with the most likely tokens",
             {.shown_default = "trains", .needs = {"--base"}});
    own_.chat.add_to(line);
    lora_.add_to(line);
  }
  /// @throws UserError
  void check() {
    lora_.check(run_.load);
    if (own_.talks()) check_talk();
    if (!own_.base.empty()) take_base_model(run_, own_.base);
    if (lora_.on() && own_.base.empty())
      throw UserError("--lora-rank needs --base: the model that the adapter is for");
    if (!own_.merged.empty() && !lora_.on())
      throw UserError("--save-merged {}: no adapter is there to merge; legal is --save",
                      own_.merged);
    if (!own_.merged.empty() && checkpoint_in(own_.merged))
      throw UserError("--save-merged {}: holds a checkpoint; legal is another directory",
                      own_.merged);
    if (!own_.merged.empty()) refuse_foreign_files(own_.merged);
    const GptConfig gpt = run_.gpt();
    if (gpt.has_experts())
      throw UserError("--base {}: a model with experts; legal is one without", own_.base);
    if (lora_.on() && family(gpt) == Family::Mixture)
      throw UserError("--lora-rank: peft knows no mixture of the parts of several models");
    if (own_.talks()) take_tokenizer(gpt);
    if (run_.data.ends_with(".jsonl")) take_chats(gpt);
  }

 private:
  void check_talk() {
    for (const auto& [flag, given] :
         {std::pair{"--data", !run_.data.empty()},
          {"--save", !run_.save.empty()},
          {"--save-merged", !own_.merged.empty()},
          {"--trace", !run_.trace.empty()},
          {"--report", !run_.report.empty()},
          {"--timeline", !run_.timeline.empty()},
          {"--plan-only", run_.plan_only},
          {"--lora-rank without --load", lora_.on() && run_.load.empty()}})
      if (given) throw UserError("{} with --chat, which takes no step; legal is one of them", flag);
    const double t = *own_.temperature;
    if (!(t == 0 || (t >= 1e-3 && t <= 1e6)))
      throw UserError("--chat must be 0, or from 0.001 to 1e6, not {}", t);
    run_.refuse_ranks();
    run_.plan_only = true;  // no text is read
  }

  void take_chats(const GptConfig& gpt) {
    if (packing_.end_of_text)
      throw UserError("--end-of-text with chats, which end where their line ends; legal is none");
    packing_.documents = true;
    // So an answer has the bits that chapter 31 will give it.
    if (packing_.chunk_length == 0) packing_.chunk_length = gpt.seq_len;
    if (run_.plan_only) return;
    Speller speller(take_tokenizer(gpt), own_.chat.form);
    if (run_.text_tokenizer) own_.jinja = speller.jinja();
    run_.encoded = read_chats(run_.data, speller, own_.chat.learn, gpt.seq_len, own_.counts);
    run_.format = {.width = run_.encoded->width};
    run_.file = std::make_shared<const InputFile>(run_.data, "--data", run_.encoded->bytes);
    if (run_.encoded->ends.size() < 10)
      throw UserError(
          "--data {}: {} of its {} chats have a target within {} tokens; legal are ten or more, of "
          "which the last tenth validates",
          run_.data, run_.encoded->ends.size(), own_.counts.chats, gpt.seq_len + 1);
  }

  /// The tokenizer of --base, null for bytes. The token that ends a message ends its texts.
  const Tokenizer* take_tokenizer(const GptConfig& gpt) {
    run_.text_tokenizer = find_tokenizer(run_.tokenizer, own_.base.empty() ? run_.load : own_.base);
    const Tokenizer* tokenizer = nullptr;
    if (run_.text_tokenizer) {
      auto own = std::make_shared<RunTokenizer>(*run_.text_tokenizer);
      own->tokenizer.end_texts_with(Speller(&own->tokenizer, own_.chat.form).end());
      tokenizer = &own->tokenizer;
      run_.text_tokenizer = own;
    }
    if (tokenizer ? run_.found && tokenizer->vocab() > gpt.vocab : gpt.vocab != 256)
      throw UserError("{}: a vocabulary of {}; legal is that of its tokenizer, or 256 without one",
                      own_.base.empty() ? "--model " + run_.model : "--base " + own_.base,
                      gpt.vocab);
    return tokenizer;
  }

  BaseOptions& own_;
  LoraOptions& lora_;
  PackOptions& packing_;
  RunOptions& run_;
};

/// Files of a checkpoint that no other chapter writes: the tokenizer's configuration with the
/// chat template, and for an adapter what peft wants to know.
inline std::map<std::string, std::string> further_files(const BaseOptions& base,
                                                        const LoraOptions& lora,
                                                        const RunOptions& run,
                                                        const GptConfig& gpt) {
  std::map<std::string, std::string> files;
  if (lora.on()) files[kAdapterConfigFile] = adapter_config(lora, gpt, base.base).dump(2) + "\n";
  if (base.jinja.empty()) return files;
  const auto plain = hf_tokenizer_files(run.text_tokenizer->tokenizer).at(kTokenizerConfigFile);
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(plain);
  config["chat_template"] = base.jinja;
  files[kTokenizerConfigFile] = config.dump(2) + "\n";
  return files;
}

/// The weights of --base that do not learn: in the precision of the run, with no master, gradient
/// or state. Without adapters all weights learn, and this has none.
class Frozen {
 public:
  Frozen(Arena& arena, const GptConfig& gpt, const LoraOptions& lora,
         const PrecisionOptions& precision)
      : arena_(arena), layout_(gpt) {
    if (lora.on()) params_ = arena.alloc(Mem::Param, "base", precision.dtype(), {layout_.size()});
  }
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, const LoraOptions& lora,
                        const PrecisionOptions& precision) {
    if (!lora.on()) return;
    const int64_t P = ParamLayout(gpt).size();
    bytes[Mem::Param] += P * size_of(precision.dtype());
    if (precision.narrow()) bytes[Mem::Staging] += 4 * P;
  }

  /// What the model reads: the base and the adapters in `weights`, or without adapters `weights`.
  GptTensors with(const ParamLayout& learned, Tensor weights) const {
    GptTensors w = params_ ? layout_.view(params_) : GptTensors{};
    for (int64_t s = 0; s < learned.sections(); ++s)
      learned.put(w, s, learned.section_of(weights, s));
    return w;
  }

  /// @throws UserError
  void load(const Ctx& ctx, const std::string& base) {
    if (!params_) return;
    if (params_.dtype == Dtype::F32) return read(ctx, base, params_);
    Tensor wide = arena_.alloc(Mem::Staging, "base_f32", Dtype::F32, {layout_.size()});
    read(ctx, base, wide);
    ctx.kernels->cast(ctx, params_, wide);
    arena_.release(wide);
  }

  /// --save-merged, on one rank. @param state of the adapters
  void save_merged(const Ctx& ctx, const BaseOptions& base, float scale, TrainingState state,
                   int64_t steps) {
    const HostCopy learned = HostCopy::of(ctx, state.params.tensor);
    Arena own;
    const Tensor all = own.alloc(Mem::Staging, "merged", Dtype::F32, {layout_.size()});
    read(ctx, base.base, all);
    merge(all, layout_, learned.tensor(), state.layout, scale);
    SaveDirectory directory(base.merged);
    state.texts.erase(kAdapterConfigFile);
    const TrainingState whole{.layout = layout_,
                              .params = all,
                              .optim = {},
                              .texts = state.texts,
                              .end_of_text = state.end_of_text};
    const std::string why_not = save_checkpoint(ctx, &directory, whole, steps);
    if (!why_not.empty()) throw UserError("--save-merged {}: {}", base.merged, why_not);
  }

 private:
  void read(const Ctx& ctx, const std::string& base, Tensor to) const {
    load_parameters(ctx, base, {.layout = layout_, .params = to, .optim = {}});
  }

  Arena& arena_;
  ParamLayout layout_;
  Tensor params_;
};

/// As load_or_init; but a run without --load whose weights all learn begins with those of --base.
inline int64_t load_or_begin(const Ctx& ctx, const RunOptions& run, const std::string& base,
                             const TrainingState& state) {
  const bool own = !run.load.empty() || base.empty() || state.layout.config().adapter_rank > 0;
  if (own) return load_or_init(ctx, run.load, run.seed, state);
  load_parameters(ctx, base, {.layout = state.layout, .params = state.params, .optim = {}});
  return 0;
}

}  // namespace ladder
