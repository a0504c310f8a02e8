// Learning rates of all steps, rows of gradients under AGC, and the noise scale from the gradients
// of micro-batches on several ranks. Nothing is trained.
#include "labs/check.h"

#include <string>
#include <vector>

#include "chapters/03_schedules/schedule.h"
#include "chapters/14_stability/adaptive_clip.h"
#include "chapters/15_batch_size/batch_ramp.h"
#include "chapters/15_batch_size/noise_scale.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

void run_schedule(Sheet& sheet, const std::string& name, ScheduleOptions options) {
  const auto steps = sheet.pick<int64_t>("steps", {24, 30});
  const auto peak = sheet.pick<double>("peak", {1e-3, 6e-4});
  for (const int64_t warmup : {int64_t{0}, sheet.pick<int64_t>("warmup", {3, 5})})
    for (const int64_t decay : {int64_t{0}, sheet.pick<int64_t>("decay", {7, 40})}) {
      options.warmup = warmup;
      options.decay_steps = options.kind == ScheduleKind::Constant ? 0 : decay;
      const Schedule schedule(options, peak, steps, 1);
      std::vector<float> rates;
      for (int64_t step = 0; step < steps + 3; ++step) rates.push_back(schedule.lr(step));
      sheet.bits(fmt::format("schedule/{}: warmup {}, decay {}", name, warmup, decay), rates);
    }
}

/// Warmup in tokens while batches grow.
void run_tokens(Sheet& sheet) {
  const auto T = sheet.pick<int64_t>("tokens", {16, 20});
  const BatchRamp ramp({{"2:4", "4:9", "6:11"}}, 8);
  std::string sequences;
  for (int64_t step = 0; step <= 14; ++step)
    sequences += fmt::format(" {}", ramp.sequences_before(step));
  sheet.text("tokens/sequences before a step", sequences);
  for (const int64_t warmup : {int64_t{1}, 2 * T, 2 * T + 1, 19 * T, 28 * T, 35 * T, 1000 * T}) {
    ScheduleOptions options{.kind = ScheduleKind::Linear};
    options.warmup_tokens = warmup;
    const Schedule schedule(options, 1, 16, ramp.tokens_before(T));
    std::vector<float> rates;
    for (int64_t step = 0; step < 16 + 3; ++step) rates.push_back(schedule.lr(step));
    sheet.bits(fmt::format("tokens/warmup: {} tokens", warmup), rates);
  }
}

GptConfig model(const Sheet& sheet) {
  return {.name = "lab",
          .layers = sheet.pick<int64_t>("layers", {1, 2}),
          .heads = 2,
          .channels = 8,
          .seq_len = 4,
          .positions = sheet.pick<int64_t>("positions", {5, 9}),
          .vocab = 43,
          .padded_vocab = 48};
}

void run_rows(Sheet& sheet) {
  Arena arena;
  Ctx ctx;
  ctx.kernels = &kernels_of("ref");
  const ParamLayout layout(model(sheet));
  const Tensor params = sheet.drawn(arena, "params", {layout.size()}),
               grads = sheet.drawn(arena, "grads", {layout.size()});
  // Rows whose norms are above their limit and below it; biases begin at 0.
  for (const ParamSpec& spec : layout.specs())
    for (int64_t i = 0; i < spec.shape.size(); ++i) {
      const int64_t row = spec.is_matrix() ? i / spec.shape.dims[1] : 0;
      grads.data<float>()[spec.offset + i] *= row % 3 == 0 ? 0.01f : 1.0f;
      if (!spec.is_matrix()) params.data<float>()[spec.offset + i] *= row % 2 == 0 ? 0 : 1;
    }
  AdaptiveClipOptions options;
  options.agc = sheet.pick("limit", {0.05f, 0.1f});
  const AdaptiveClip agc(arena, layout, options);
  const bool on = agc.apply(ctx, grads, params);
  for (const ParamSpec& spec : layout.specs())
    sheet.bits(fmt::format("rows/{}: {}",
                           spec.role == ladder::Role::Head ? "head"
                           : spec.is_matrix()              ? "matrices"
                                                           : "vectors",
                           spec.name),
               layout.tensor(grads, spec));
  const bool off = AdaptiveClip(arena, layout, {}).apply(ctx, grads, params);
  sheet.text("rows/whether it is on", fmt::format("{} with a limit, {} without", on, off));
}

void run_workspace(Sheet& sheet) {
  const ParamLayout layout(model(sheet));
  int64_t rows = 0;
  for (const ParamSpec& spec : layout.specs()) rows += spec.is_matrix() ? spec.rows : 1;
  sheet.without_idea("workspace", 2 * 8 * kLimbs * rows);
  sheet.count("workspace", AdaptiveClip::bytes(layout, {.agc = 0.1f}));
}

/// Some steps of `ranks` ranks with `micros` small gradients each.
void run_noise(Sheet& sheet, int ranks, int64_t micros) {
  const GptConfig gpt = model(sheet);
  const auto scale = sheet.pick<float>("loss scale", {8, 1024});
  const int64_t parts = 2 * ranks * micros;  // every second gradient is alone in its buffer
  struct Found {
    std::vector<double> squares;
    int64_t sent = 0;
  };
  const Found first =
      on_ranks<Found>(ranks, [&](Comm& comm, Found& found) {
        OneRank rank(comm);
        const ParamLayout layout(gpt);
        SmallNorms norms(rank.arena, {.on = true}), none(rank.arena, {.on = false});
        if (ranks == 1) none.add(rank.ctx, layout, {}, 0);  // nothing happens
        for (uint64_t step = 0; step < 3; ++step) {
          norms.begin_step();
          for (int64_t k = 0; k < micros; ++k) {
            const auto stream = 100 * step + static_cast<uint64_t>(10 * comm.rank() + k);
            const Tensor grads = sheet.drawn(rank.arena, "small", {layout.size()}, stream);
            for (int64_t s = layout.sections(); s-- > 0;) norms.add(rank.ctx, layout, grads, s);
          }
          found.squares.push_back(norms.mean_square(rank.ctx, comm, parts, scale));
        }
        found.sent = comm.statistics().wire_bytes();
      }).front();
  for (size_t step = 0; step < first.squares.size(); ++step)
    sheet.bits(fmt::format("noise/squares: step {}", step + 1),
               std::vector{static_cast<float>(first.squares[step])});
  if (ranks == 1) return;
  // Without the idea every rank sends its gradient in each of three steps, as in chapter 07.
  sheet.without_idea("sent", 3 * 2 * 4 * ParamLayout(gpt).size() * (ranks - 1) / ranks);
  sheet.count("sent", first.sent);
}

/// The scale from two sizes of batches, which differ from step to step.
void run_scale(Sheet& sheet, int64_t same) {
  NoiseScale noise;
  const std::vector<float> drawn = sheet.normals("norms", 40);
  std::vector<float> values{static_cast<float>(noise.value())};
  for (size_t step = 0; step < drawn.size() / 2; ++step) {
    const double big = 3 + 0.2 * drawn[2 * step], small = 40 + 5 * drawn[2 * step + 1];
    const bool both = static_cast<int64_t>(step) == same;
    noise.add_step(small, big, 2, both ? 2 : step < 10 ? 8 : 16);
    values.push_back(static_cast<float>(noise.value()));
  }
  nlohmann::json extra;
  noise.report(extra);
  const nlohmann::json& told = extra["noise_scale"];
  const auto of = [&](const char* name) { return static_cast<float>(told.at(name).get<double>()); };
  sheet.bits("scale/values", values);
  sheet.bits("scale/signal and noise", std::vector{of("signal"), of("noise")});
}

}  // namespace

void cases(Sheet& sheet) {
  for (const ScheduleKind kind :
       {ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine})
    sheet.run(fmt::format("{}", to_string(kind)),
              [&] { run_schedule(sheet, "rates", {.kind = kind}); });
  for (const ScheduleKind decay :
       {ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Exponential})
    sheet.run(fmt::format("wsd, {}", to_string(decay)), [&] {
      run_schedule(sheet, "rates", {.kind = ScheduleKind::Wsd, .wsd_decay = decay});
    });
  sheet.run("by tokens", [&] { run_tokens(sheet); });
  sheet.run("by rows", [&] { run_rows(sheet); });
  sheet.run("by workspace", [&] { run_workspace(sheet); });
  for (const auto& [ranks, micros] : {std::pair{1, int64_t{2}}, {2, 1}, {4, 2}})
    sheet.run(fmt::format("{} ranks, {} small gradients each", ranks, micros),
              [&] { run_noise(sheet, ranks, micros); });
  for (const int64_t same : {-1, 7})
    sheet.run(same < 0 ? "two sizes in each step" : "one size in one step",
              [&] { run_scale(sheet, same); });
}

}  // namespace ladder::lab
