// What the pictures of the chapters show, in small numbers, as the code itself computes it, and the
// sizes of all models: prints JSON, which scripts/pictures.py draws.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/12_pipeline_parallel/pipeline_clock.h"
#include "chapters/24_tokenizer/trainer.h"
#include "common/comm/chunks.h"
#include "common/comm/faulty_comm.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "common/model/config.h"
#include "common/model/layout.h"
#include "common/model/rope.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "tests/pictures/context.h"
#include "tests/pictures/documents.h"
#include "tests/pictures/exchange.h"

namespace ladder {
namespace {

using nlohmann::json;
using Row = std::vector<float>;

constexpr int64_t kNumbers = 8;

Row row_of(const Tensor& x) { return {x.data<float>(), x.data<float>() + x.size()}; }

/// Writes down what it sends: before each message the tensor as it is, and which part of it goes.
class WritingComm : public FaultyComm {
 public:
  WritingComm(Comm& inner, Tensor data) : FaultyComm(inner, {}), data_(data) {}

  Pending iexchange(Tensor out, int to, Tensor inp, int from) override {
    if (out && out.size() > 0)
      steps_.push_back({{"state", row_of(data_)},
                        {"to", to},
                        {"begin", out.data<float>() - data_.data<float>()},
                        {"count", out.size()}});
    return FaultyComm::iexchange(out, to, inp, from);
  }
  /// Of all messages, and the state after them.
  json steps() const {
    json all = steps_;
    all.push_back({{"state", row_of(data_)}});
    return all;
  }

 private:
  Tensor data_;
  json steps_ = json::array();
};

/// An all-reduce on four ranks: [rank][step]. Rank r gives 10^r, so that the digits of a sum say
/// whose numbers are in it.
json all_reduce(Reduction reduction) {
  constexpr int kRanks = 4;
  std::vector<json> ranks(kRanks);
  run_threads(kRanks, [&](Comm& comm) {
    Arena arena;
    Ctx ctx;
    ctx.kernels = &ref_kernels();
    const Tensor data = arena.alloc(Mem::Grad, "data", Dtype::F32, {kNumbers});
    float mine = 1;
    for (int r = 0; r < comm.rank(); ++r) mine *= 10;
    for (float& x : std::span(data.data<float>(), kNumbers)) x = mine;
    WritingComm writing(comm, data);
    Reducer(writing, ctx, reduction, arena, Dtype::F32, kNumbers).all_reduce(data);
    ranks[static_cast<size_t>(comm.rank())] = writing.steps();
  });
  return ranks;
}

/// A section of eight weights on two ranks: gradients, their sums, an update by SGD, a gather.
/// [rank], of each the whole buffer.
json sharded_update() {
  constexpr int kRanks = 2;
  std::vector<json> ranks(kRanks);
  run_threads(kRanks, [&](Comm& comm) {
    Arena arena;
    Ctx ctx;
    ctx.kernels = &ref_kernels();
    const Tensor w = arena.alloc(Mem::Param, "w", Dtype::F32, {kNumbers});
    const Tensor g = arena.alloc(Mem::Grad, "g", Dtype::F32, {kNumbers});
    for (int64_t i = 0; i < kNumbers; ++i) {
      w.data<float>()[i] = static_cast<float>(10 * (i + 1));
      g.data<float>()[i] = static_cast<float>(comm.rank() == 0 ? i + 1 : i % 3 + 1);
    }
    Reducer reducer(comm, ctx, Reduction::Halving, arena, Dtype::F32, kNumbers);
    const Chunks chunks{kNumbers, kRanks};
    json& out = ranks[static_cast<size_t>(comm.rank())];
    out = {{"chunk", {chunks[comm.rank()].begin, chunks[comm.rank()].end}},
           {"w", row_of(w)},
           {"g", row_of(g)}};
    reducer.reduce_scatter(g, chunks);
    out["reduced"] = row_of(g);
    ctx.kernels->sgd_update(ctx, chunks.of(w, comm.rank()), {}, chunks.of(g, comm.rank()),
                            {.lr = 1, .momentum = 0, .nesterov = false});
    out["updated"] = row_of(w);
    reducer.all_gather(w, chunks);
    out["gathered"] = row_of(w);
  });
  return ranks;
}

/// How two tensor ranks cut the matrices of an MLP: [rank], the rows or columns as shares of all.
json cuts() {
  const GptConfig tiny{"", 1, 2, 4, 4, 4, 8, 8};
  json all = json::array();
  for (int64_t rank = 0; rank < 2; ++rank) {
    const ParamLayout layout(tiny, 1, {rank, 2});
    const ParamSpec& fc = layout.spec("transformer.h.0.mlp.c_fc.weight");
    const ParamSpec& proj = layout.spec("transformer.h.0.mlp.c_proj.weight");
    const auto F = static_cast<double>(4 * tiny.channels);
    all.push_back({{"fc_rows",
                    {static_cast<double>(fc.first / fc.stride) / F,
                     static_cast<double>(fc.first / fc.stride + fc.shape.dims[0]) / F}},
                   {"proj_columns",
                    {static_cast<double>(proj.first) / F,
                     static_cast<double>(proj.first + proj.shape.dims[1]) / F}}});
  }
  return all;
}

/// Rotary positions. "turned": a pair of channels that is (1, 0), as each token has it. "scores":
/// the product of such queries and keys, [query][key]. "pairs": with which channel each of eight is
/// turned.
json rope() {
  constexpr int64_t T = 4, HS = 2, kHead = 8;
  Arena arena;
  Ctx ctx;
  ctx.kernels = &ref_kernels();
  const auto turn = [&](Tensor qkv, int64_t size) {
    const Tensor angles = arena.alloc(Mem::Workspace, "angles", Dtype::F32, {T, size});
    fill_angles(angles, {});
    ctx.kernels->rope(ctx, qkv, angles, /*heads=*/1, /*back=*/false);
  };
  const Tensor qkv = arena.zeros(Mem::Activation, "qkv", Dtype::F32, {1, T, 3 * HS});
  float* x = qkv.data<float>();
  for (int64_t t = 0; t < T; ++t) x[t * 3 * HS] = x[t * 3 * HS + HS] = 1;
  turn(qkv, HS);
  json turned = json::array(), scores = json::array(), pairs = json::array();
  for (int64_t t = 0; t < T; ++t) {
    const float* q = x + t * 3 * HS;
    turned.push_back({q[0], q[1]});
    json row = json::array();
    for (const float* k = x + HS; k < q + 3 * HS; k += 3 * HS)
      row.push_back(q[0] * k[0] + q[1] * k[1]);
    scores.push_back(row);
  }
  for (int64_t i = 0; i < kHead; ++i) {
    const Tensor one = arena.zeros(Mem::Activation, "one", Dtype::F32, {1, T, 3 * kHead});
    float* second = one.data<float>() + 3 * kHead;  // the token that is turned by one angle each
    second[i] = 1;
    turn(one, kHead);
    for (int64_t j = 0; j < kHead; ++j)
      if (j != i && second[j] != 0) pairs.push_back(j);
  }
  return {{"turned", turned}, {"scores", scores}, {"pairs", pairs}};
}

/// Six tokens of one sequence, each of which takes two of four experts: "scores" [token][expert],
/// "chosen" and "weights" [token][2], and what each expert has: "rows", tokens in order, and
/// "kept", how many of those it takes with --capacity 1.
json experts() {
  constexpr int64_t T = 6, E = 4, k = 2;
  constexpr float kLogits[T][E] = {{2, 1, 0, 0}, {1, 0, 2, 0}, {2, 0, 1, 0},
                                   {0, 0, 2, 1}, {2, 1, 0, 0}, {1, 0, 2, 0}};
  Arena arena;
  Ctx ctx;
  ctx.kernels = &ref_kernels();
  const auto alloc = [&](Dtype dtype, Shape shape) {
    return arena.alloc(Mem::Workspace, "x", dtype, shape);
  };
  const Tensor logits = alloc(Dtype::F32, {1, T, E}), scores = alloc(Dtype::F32, {1, T, E});
  std::copy_n(&kLogits[0][0], T * E, logits.data<float>());
  const Tensor chosen = alloc(Dtype::I32, {1, T, k}), weight = alloc(Dtype::F32, {1, T, k});
  const Tensor load = alloc(Dtype::I32, {1, E}), losses = alloc(Dtype::F32, {2, 1});
  ctx.kernels->route_forward(ctx, chosen, weight, scores, load, losses, logits, {},
                             {.sigmoid = false, .renormalize = true});
  json all = {{"loss", losses.data<float>()[0]}};
  for (int64_t t = 0; t < T; ++t) {
    const float *s = scores.data<float>() + t * E, *w = weight.data<float>() + t * k;
    const int32_t* c = chosen.data<int32_t>() + t * k;
    all["scores"].push_back(std::vector<float>(s, s + E));
    all["chosen"].push_back(std::vector<int32_t>(c, c + k));
    all["weights"].push_back(std::vector<float>(w, w + k));
  }
  for (const int64_t capacity : {int64_t{0}, T * k / E}) {
    const ExpertRows rows{.offsets = alloc(Dtype::I32, {E + 1}),
                          .row = alloc(Dtype::I32, {1, T, k}),
                          .from = alloc(Dtype::I32, {T * k})};
    ctx.kernels->expert_rows(ctx, rows, chosen, capacity);
    for (int64_t e = 0; e < E; ++e) {
      const int32_t* at = rows.offsets.data<int32_t>() + e;
      std::vector<int64_t> tokens;
      for (int32_t r = at[0]; r < at[1]; ++r) tokens.push_back(rows.from.data<int32_t>()[r] / k);
      all[capacity == 0 ? "rows" : "kept"].push_back(tokens);
    }
  }
  return all;
}

/// Every schedule on `stages` stages, where F, I and W take as long as one another.
json pipelines(int64_t stages, int64_t micros) {
  json all = json::array();
  for (const std::string name : kNames<PipelineKind>) {
    const PipelineKind kind = *named<PipelineKind>(name);
    const bool interleaved = kind == PipelineKind::Interleaved;
    const Pipeline pipeline = make_pipeline(kind, stages, interleaved ? 2 : 1, micros);
    const double unit = interleaved ? 0.5 : 1;  // a chunk is half a stage
    const PipelineClock clock = simulate(pipeline, equal_durations(pipeline, unit, unit, unit));
    all.push_back({{"name", name}, {"idle", clock.idle_share()}, {"stages", to_json(clock)}});
  }
  return all;
}

/// Four words and their first merges: the tokens after each, and which pairs were as frequent.
json merges() {
  const std::vector<WordCount> text{{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}};
  Vocabulary vocabulary(Ties::Hf, 260);
  train_plain(text, vocabulary);
  std::vector<TokenWord> words;
  for (const auto& [bytes, count] : text) words.push_back({vocabulary.ids(bytes), count});
  const auto names = [&](const std::vector<uint32_t>& ids) {
    json all = json::array();
    for (const uint32_t id : ids) all.push_back(vocabulary.tokens()[id]);
    return all;
  };
  json steps = json::array();
  for (const Merge& m : vocabulary.merges()) {
    const auto counts = count_pairs(words);
    const int64_t most = counts.at({m.left, m.right});
    json equal = json::array(), after = json::array();
    for (const auto& [pair, count] : counts)
      if (count == most) equal.push_back(names({pair.first, pair.second}));
    for (TokenWord& word : words) {
      merge_pair(word.ids, {most, m.left, m.right}, m.result);
      after.push_back(names(word.ids));
    }
    steps.push_back(
        {{"pair", names({m.left, m.right})}, {"count", most}, {"equal", equal}, {"words", after}});
  }
  json all{{"steps", steps}, {"words", json::array()}};
  for (const auto& [bytes, count] : text) all["words"].push_back({bytes, count});
  return all;
}

/// The sizes of all presets but those with experts, which chapter 01 does not train.
json models() {
  json all = json::array();
  for (const std::string& name : preset_names()) {
    const GptConfig gpt = preset(name);
    if (gpt.has_experts()) continue;
    all.push_back({{"name", name},
                   {"layers", gpt.layers},
                   {"heads", gpt.heads},
                   {"channels", gpt.channels},
                   {"seq_len", gpt.seq_len},
                   {"vocab", gpt.vocab},
                   {"parameters", ParamLayout(gpt).live()}});
  }
  return all;
}

}  // namespace
}  // namespace ladder

int main() {
  using namespace ladder;
  const json data{{"ring", all_reduce(Reduction::Ring)},
                  {"halving", all_reduce(Reduction::Halving)},
                  {"sharded_update", sharded_update()},
                  {"cuts", cuts()},
                  {"pipelines", pipelines(2, 4)},
                  {"models", models()},
                  {"merges", merges()},
                  {"packing", packing()},
                  {"dealt_epoch", dealt_epoch()},
                  {"rope", rope()},
                  {"token_orders", token_orders()},
                  {"ring_of_keys", ring_of_keys()},
                  {"experts", experts()},
                  {"exchanged_tokens", exchanged_tokens()}};
  std::cout << data.dump() << "\n";
}
