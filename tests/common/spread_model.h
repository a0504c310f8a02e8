// A small model that is spread over ranks, for tests of what ranks save together.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "common/comm/run_ranks.h"
#include "common/save/checkpoint.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {

/// How a model is spread.
struct Spread {
  int64_t shards = 1, tp = 1, pp = 1, replicas = 1, ep = 1;
  int ranks() const { return static_cast<int>(shards * tp * pp * replicas); }
};
inline void PrintTo(const Spread& s, std::ostream* out) {
  *out << s.shards << " shards, tp " << s.tp << ", pp " << s.pp << ", ep " << s.ep << ", "
       << s.replicas << " replicas";
}

/// What one rank has of it.
struct RankModel {
  RankModel(const GptConfig& config, const Spread& s, Comm& comm)
      : layout(of_rank(config, s, comm.rank())), comm_(comm) {}

  static ParamLayout of_rank(const GptConfig& config, const Spread& s, int64_t rank) {
    const std::optional<ExpertRank> experts =
        s.ep > 1 ? std::optional(ExpertRank{0, s.ep}) : std::nullopt;
    return ParamLayout(config, s.shards, {0, s.tp}, {0, s.pp}, experts)
        .shard(0)
        .on_rank(rank % (s.shards * s.tp * s.pp));
  }
  TrainingState state() const {
    return {.layout = layout,
            .params = layout.own(params),
            .optim = {{"code", code}, {"m", m}, {"count", count}},
            .comm = &comm_};
  }
  int64_t load(const std::string& path) const { return load_checkpoint(Ctx{}, path, state()); }

  ParamLayout layout;
  Arena arena{};
  Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  Tensor code = arena.zeros(Mem::Optim, "code", Dtype::U8, {layout.size()});
  Tensor m = arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()});
  Tensor count = arena.zeros(Mem::Optim, "count", Dtype::I64, {1, 3});

 private:
  Comm& comm_;
};

/// Saves a model on one rank. All its numbers are different.
inline void save_one(const GptConfig& config, const std::string& dir) {
  run_threads(1, [&](Comm& comm) {
    const RankModel model(config, {}, comm);
    for (const ParamSpec& spec : model.layout.specs()) {
      SmallModel::fill_all<float>(model.params.slice(spec.offset, spec.live()),
                                  1 + static_cast<float>(spec.offset));
      SmallModel::fill_all<float>(model.m.slice(spec.offset, spec.live()),
                                  0.5f + static_cast<float>(spec.offset));
      SmallModel::fill_all<uint8_t>(model.code.slice(spec.offset, spec.live()), 1);
    }
    SmallModel::fill_all<int64_t>(model.count.view({3}), 7);
    SaveDirectory home(dir);
    EXPECT_EQ(save_checkpoint(home, model.state(), 3), "");
  });
}

/// The models whose layouts in files differ.
inline std::vector<GptConfig> spread_configs(const Spread& spread) {
  if (spread.ep > 1) return {small_of("moe-nano", 32)};
  return {small_config(), small_of("llama-nano", 32)};
}

/// The files of the checkpoint, by name.
inline std::map<std::string, std::string> checkpoint_files(const std::string& dir) {
  return files_in(checkpoint_in(dir)->string());
}

inline const auto kSpreads =
    testing::Values(Spread{}, Spread{.shards = 2}, Spread{.shards = 8}, Spread{.tp = 2},
                    Spread{.pp = 2}, Spread{.replicas = 3}, Spread{.shards = 2, .replicas = 2},
                    Spread{.shards = 2, .tp = 2, .pp = 2}, Spread{.shards = 4, .ep = 2});

}  // namespace ladder
