// The time of a step, as a sum of terms.
//
// A pipeline of m micro-batches takes m (F + I + W) of its slowest stage (stage_time.h), plus the
// bubble of chapter 12. The ranks that split the batch exchange gradients while the last backward
// computes, and weights while the first forward computes. Only what this computation cannot hide
// counts. Then the optimizer reads and writes its states once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_clock.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/stage_time.h"
#include "chapters/23_planner/usual_memory.h"
#include "kernels/cost.h"

namespace ladder::planner {

/// The time of a step, and which stage is slowest.
struct StepTime {
  Seconds terms;       ///< of the slowest stage
  StageSeconds stage;  ///< of one micro-batch on that stage
  int64_t slowest = 0;
  double seconds() const { return terms.total(); }
};

/// The times of one layout.
class StepModel {
 public:
  StepModel(const Job& job, const Device& device, const PlanLayout& layout, SizeTable& sizes)
      : job_(job), device_(device), l_(layout), sizes_(sizes), stages_(job, device, layout) {}

  /// The step. Its bubble comes from the formula of chapter 12, with the times of the slowest
  /// stage.
  StepTime step() const {
    const StepTime time = busy();
    const auto& [F, I, W] = time.stage;
    const double idle = theory_idle_share(l_.schedule, l_.pp, l_.chunks, l_.micros(job_), F.total(),
                                          I.total(), W.total());
    return whole(time, idle / (1 - idle) * time.terms.total());
  }

  /// The same, but the bubble comes from the clock of chapter 12, where each stage has its own
  /// times.
  StepTime clocked() const {
    const StepTime time = busy();
    return l_.pp == 1 ? whole(time, 0) : whole(time, clock().end() - time.terms.total());
  }

  /// A time that clocked() does not go below, without a clock. Stage s begins when the stages
  /// before it have sent a first forward. Then it has all of its own work. It ends before the
  /// stages before it end, because a gradient goes back through each of them. In zb-h1 only the
  /// gradients of inputs do that. When the last of them leaves stage s, at most s + 1 of its weight
  /// gradients are left.
  StepTime least() const {
    const StepTime time = busy();
    const auto m = static_cast<double>(l_.micros(job_)), v = static_cast<double>(l_.chunks);
    const bool split = l_.schedule == PipelineKind::ZbH1;
    double forward = 0, back = split ? stages_.of(0).weight.total() : 0, end = 0;
    const StageSeconds first = stages_.of(0), middle = stages_.of(std::min<int64_t>(1, l_.pp - 1)),
                       last = stages_.of(l_.pp - 1);
    for (int64_t s = 0; s < l_.pp; ++s) {
      const StageSeconds& t = s == 0 ? first : l_.is_last(s) ? last : middle;
      const double before = std::max(0.0, m - 1 - static_cast<double>(s));
      end = std::max(end, forward + m * t.total() + (split ? 0 : back));
      if (split && s > 0)
        end = std::max(end, forward + m * (t.forward.total() + t.input.total()) +
                                before * t.weight.total() + back);
      forward += t.forward.total() / v;
      back += (split ? t.input.total() : t.backward()) / v;
    }
    return whole(time, end - time.terms.total());
  }

  /// The actions of each stage in time. For more than one stage.
  PipelineClock clock() const {
    const Pipeline pipeline = make_pipeline(l_.schedule, l_.pp, l_.chunks, l_.micros(job_));
    const auto v = static_cast<double>(l_.chunks);
    Durations all;
    for (const auto& list : pipeline.lists) {
      const StageSeconds t = stages_.of(std::ssize(all));  // with its messages
      all.push_back(durations_of(list, {t.forward.total() / v, t.backward() / v,
                                        t.input.total() / v, t.weight.total() / v}));
    }
    return simulate(pipeline, all);
  }

  Link data_link() const { return link_of(device_, l_.tp, l_.shards()); }
  Link replica_link() const { return link_of(device_, l_.tp * l_.shards(), l_.replicas); }

 private:
  /// All micro-batches on the slowest stage. The stages between the first and the last are alike.
  StepTime busy() const {
    StepTime time{.terms = {}, .stage = stages_.of(0), .slowest = 0};
    for (const int64_t s : {std::min<int64_t>(1, l_.pp - 1), l_.pp - 1})
      if (const StageSeconds t = stages_.of(s); t.total() > time.stage.total()) {
        time.stage = t;
        time.slowest = s;
      }
    const auto m = static_cast<double>(l_.micros(job_));
    for (const Seconds& phase : {time.stage.forward, time.stage.input, time.stage.weight})
      time.terms.add(phase, m);
    return time;
  }

  StepTime whole(StepTime time, double bubble) const {
    time.terms[Term::Bubble] = bubble;
    time.terms[Term::Data] = data(time);
    time.terms[Term::Update] = update(time.slowest);
    return time;
  }

  /// The time of messages between the ranks that split the batch, as far as no computation hides
  /// it.
  double data(const StepTime& time) const {
    if (l_.batch_ranks() == 1) return 0;
    const StageSizes& n = sizes_.of(job_, l_, time.slowest);
    // Each section is sent by itself, in `hops` messages that wait for one another.
    const double hops = messages_of_all_reduce(l_.shards()) / 2;
    const auto seconds = [&](double bytes, int64_t sections) {
      return data_link().seconds(bytes, static_cast<double>(sections) * hops);
    };
    const double reduce =
        seconds(static_cast<double>(n.reduce) * static_cast<double>(job_.sent_gradient_bytes()) / 4,
                n.sections);
    const double gather = seconds(static_cast<double>(n.gather), n.sections);
    const double forward = time.stage.forward.total(), backward = time.stage.backward();
    const auto beyond = [&](double sent, double beside) { return device_.exposed(sent, beside); };
    const auto m = static_cast<double>(l_.micros(job_));
    // An all-reduce takes as long as two reduce-scatters: it also gathers the sums, because without
    // ZeRO each rank needs all of them.
    if (l_.zero == 0) return beyond(2 * reduce, backward);
    if (l_.zero == 1) return beyond(reduce, backward) + beyond(gather, forward);
    if (l_.zero == 2) return m * beyond(reduce, backward) + beyond(gather, forward);
    // Backward has let most sections go since forward. It gathers them again, each by itself.
    const double again = seconds(static_cast<double>(n.gather_again), n.sections_again);
    return m * (beyond(gather, forward) + beyond(again + reduce, backward)) + across(n);
  }

  /// Chapter 30: an all-reduce of a shard's gradient, once a step, after backward.
  double across(const StageSizes& n) const {
    if (l_.replicas == 1) return 0;
    const auto R = static_cast<double>(l_.replicas);
    const auto bytes = static_cast<double>(n.own * job_.sent_gradient_bytes());
    return replica_link().seconds(2 * (R - 1) / R * bytes, messages_of_all_reduce(l_.replicas));
  }

  /// AdamW, the norm of the gradient, and rounding the weights for the next forward.
  double update(int64_t s) const {
    const StageSizes& n = sizes_.of(job_, l_, s);
    const int64_t own = l_.zero == 0 ? n.all : n.own;
    const int64_t rounded = job_.precision.narrow() ? 6 * own : 0;
    return device_.memory_seconds(static_cast<double>(cost::adamw_update(own).bytes +
                                                      cost::squared_norm(own).bytes + rounded));
  }

  const Job& job_;
  const Device& device_;
  const PlanLayout& l_;
  SizeTable& sizes_;
  StageModel stages_;
};

}  // namespace ladder::planner
