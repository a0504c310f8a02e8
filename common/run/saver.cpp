#include "common/run/saver.h"

#include <cmath>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/model/init.h"
#include "common/run/agreement.h"
#include "common/run/tokenizer.h"
#include "common/save/checkpoint.h"
#include "common/save/directory.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {

int64_t load_or_init(const Ctx& ctx, const std::string& load, uint64_t seed,
                     const TrainingState& state) {
  if (!load.empty()) return load_checkpoint(ctx, load, state);
  init_params(ctx, state.params, state.layout, seed);
  return 0;
}

Saver::Saver(const RunOptions& options, const Ctx& ctx, Log& log, int rank)
    : options_(options), ctx_(ctx), log_(log) {
  if (rank != 0) return;
  if (!options.save.empty()) {
    directory_ = std::make_unique<SaveDirectory>(options.save, options.keep);
    options.refuse_to_replace();
  }
  if (!options.save.empty() || !options.load.empty()) origin_ = origin_of(options);
}

Saver::~Saver() = default;

std::string Saver::changed() const {
  return options_.load.empty() || !log_.speaks() ? "" : changed_origin(options_.load, origin_);
}

bool Saver::due(int64_t step, bool last) {
  if (options_.save.empty()) return false;
  const int64_t every = options_.save_every;
  if (!last && (every == 0 || (step + 1) % every != 0)) return false;
  // Such weights are worth less than those in the directory. A norm that is not finite says less:
  // the step is then skipped, and leaves good weights.
  if (!log_.last() || std::isfinite(log_.last()->loss)) return true;
  tell_not_saved(step, "the loss is NaN or infinite");
  return false;
}

// The directory was good when the run began.
void Saver::save(const TrainingState& state, int64_t steps) try {
  const int64_t begin = now_ns();
  const std::string why_not = save_checkpoint(ctx_, directory_.get(), all_of(state), steps);
  saved(steps, why_not, {{"wait_ms", 1e-6 * static_cast<double>(now_ns() - begin)}});
} catch (const UserError& e) {
  throw NotWritten(log_.rank(), e.what());
}

TrainingState Saver::all_of(const TrainingState& state) const {
  TrainingState all = state;
  all.others.push_back({.name = "origin", .get = [this] { return origin_; }, .set = {}});
  if (const auto& known = options_.text_tokenizer) {
    all.texts.merge(hf_tokenizer_files(known->tokenizer));  // those of the chapter stay
    all.end_of_text = known->tokenizer.end_of_text;
  }
  return all;
}

void Saver::saved(int64_t steps, const std::string& why_not, nlohmann::json told) {
  told["steps"] = steps;
  log_.saved(std::move(told));
  if (!why_not.empty()) tell_not_saved(steps - 1, why_not);
}

void Saver::tell_not_saved(int64_t step, const std::string& why) {
  log_.not_done("--save", fmt::format("--save {} has no checkpoint of step {}: {}", options_.save,
                                      step, why));
  if (log_.speaks())
    tell(fmt::format("warning: step {}: not saved, {}; {} keeps what it holds", step, why,
                     options_.save));
}

}  // namespace ladder
