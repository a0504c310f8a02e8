#include "common/run/start.h"

#include "common/model/init.h"
#include "common/save/checkpoint.h"

namespace ladder {

int64_t load_or_init(const Ctx& ctx, const std::string& load, uint64_t seed,
                     const TrainingState& state) {
  if (!load.empty()) return load_checkpoint(ctx, load, state);
  init_params(ctx, state.params, state.layout, state.gpt, seed);
  return 0;
}

}  // namespace ladder
