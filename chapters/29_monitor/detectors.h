// --alarms: detectors, each a formula over numbers that all ranks have. So all ranks raise the same
// alarms at the same step.
//
//   not finite   the loss or the global norm is NaN or infinite. (In FP16
//                an infinite norm beside a finite loss is no alarm: the loss scale is too large.)
//   spike        x > median + k max(1.4826 MAD, median / 50), of the last 32 losses or norms,
//                where MAD is the median of |x - median| (Hampel, J. Am. Stat. Assoc. 69, 1974).
//                For normal noise 1.4826 MAD is the standard deviation. median / 50 prevents
//                alarms on a curve that hardly moves. Norms, which have a long tail, take 2 k
//   divergence   s / min s > 1.1 after 20 steps. s = 0.9 s + 0.1 loss is the smoothed loss
//                (after the criterion GL of Prechelt, "Early Stopping - But When?", 1998)
//   plateau      the last 100 losses do not fall: the slope of least squares is not below 0
//   jump         |u| / |w| of the whole model is a spike: the learning rate has changed
//   dead block   |g| of a block < 1/1000 of the largest block's
//   drift        |w| of the token embedding outside of 1/2 to 2 times its first value. At half the
//                size, gradients through the first norm are about twice as large (arXiv 2312.16903)
//   rank         |g_r| of a rank > 3 times the median of the others, in two looks in a row. All
//                shares of a batch are drawn alike, so their norms should be alike, too. Once is
//                no fault of a rank: a rate that is too high makes single shares go wild
//
// The last four need --watch-every; a look is one of its steps. A condition raises one alarm, when
// it begins to hold. (Each step that is not finite raises one, and a plateau may come again after
// 100 losses.) A spike does not enter the window that judges the next one. The smoothed loss and
// the slope use the limit in place of a spike's loss, so one bad batch is no divergence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/29_monitor/tensor_sums.h"
#include "chapters/29_monitor/watch.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/report.h"

namespace ladder {

struct DetectorOptions {
  bool on = false;
  double deviations = 8;

  void add_to(CommandLine& line) {
    line.group("29_monitor");
    line.add("--alarms", on, "let detectors look at the run; --rewind does so, too");
    line.add("--alarm-deviations", deviations, "k of a spike: robust deviations above the median",
             {.needs = {"--alarms", "--rewind"}});
  }
  /// @throws UserError
  void check() const {
    if (!(deviations > 0 && std::isfinite(deviations)))
      throw UserError("--alarm-deviations must be above 0, not {}", deviations);
  }
};

/// The median; of an even number of values the mean of the middle two.
inline double median_of(std::deque<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// The limit above which a number is a spike; infinite while fewer than `least` are known.
inline double spike_limit(const std::deque<double>& window, double k, size_t least) {
  if (window.size() < least) return std::numeric_limits<double>::infinity();
  const double middle = median_of(window);
  std::deque<double> away;
  for (const double x : window) away.push_back(std::abs(x - middle));
  return middle + k * std::max(1.4826 * median_of(away), middle / 50);
}

/// The slope of least squares of y, at x = 0, 1, ...
inline double slope_of(const std::deque<double>& y) {
  const double middle = static_cast<double>(y.size() - 1) / 2;
  double xx = 0, xy = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double dx = static_cast<double>(i) - middle;
    xx += dx * dx;
    xy += dx * y[i];
  }
  return xy / xx;
}

/// What detectors have seen: a checkpoint holds it, by the names of these members.
struct DetectorState {
  std::deque<double> losses, norms, ratios;  ///< the last ones, those of spikes left out
  std::deque<double> slope;        ///< the last kSlope losses, for slope_of(); of a spike its limit
  double smoothed = 0, least = 0;  ///< the smoothed loss, and the least that it has been
  double embedding = 0;            ///< the token embedding's norm in the first watched step
  int64_t count = 0;               ///< steps that `smoothed` has taken in
  std::set<std::string> standing;  ///< conditions that hold
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DetectorState, losses, norms, ratios, slope, smoothed, least,
                                   embedding, count, standing)

/// Adds x, and forgets all but the last `most` numbers.
inline void add_to(std::deque<double>& window, double x, size_t most) {
  window.push_back(x);
  if (window.size() > most) window.pop_front();
}

struct Alarm {
  std::string kind;  ///< "spike"
  std::string why;   ///< "loss 9.2 is above 3.1"
  bool goes_back() const { return kind == "spike" || kind == "divergence" || kind == "not finite"; }
};

class Detectors {
 public:
  /// @param on whether they look even without --alarms: --rewind needs them
  Detectors(const DetectorOptions& options, bool on, const PrecisionOptions& precision)
      : on_(options.on || on), k_(options.deviations), scaled_(precision.dtype() == Dtype::F16) {}

  /// The alarms of this step. Without a watched step the last four detectors do not look.
  std::vector<Alarm> look(const StepRecord& record, const Watch& watch) {
    alarms_.clear();
    // The loss scaler of FP16 raises its scale until a gradient overflows: that is no fault.
    const bool overflow = scaled_ && std::isfinite(record.loss) && !std::isfinite(record.grad_norm);
    if (!on_ || overflow) return {};
    if (const std::string bad = not_finite(record.loss, record.grad_norm); !bad.empty()) {
      alarms_.push_back({"not finite", bad});
      return alarms_;
    }
    const double limit = see_spike("loss", record.loss, seen_.losses, 16, k_, "spike");
    see_spike("gradient norm", record.grad_norm, seen_.norms, 16, 2 * k_, "spike");
    see_divergence(std::min<double>(record.loss, limit));
    see_plateau(std::min<double>(record.loss, limit));
    if (watch.seen()) see_tensors(*watch.seen());
    return alarms_;
  }

  /// All but the alarms about ranks: a run may go on with another number of them.
  nlohmann::json state() const {
    DetectorState seen = seen_;
    std::erase_if(seen.standing, [](const std::string& name) { return name.starts_with("rank "); });
    return seen;
  }
  void set_state(const nlohmann::json& state) {
    seen_ = state.get<DetectorState>();
    if (seen_.count < 0 || seen_.slope.size() > kSlope ||
        std::max({seen_.losses.size(), seen_.norms.size(), seen_.ratios.size()}) > kWindow)
      throw UserError("{} steps, and windows that are too long", seen_.count);
  }

 private:
  /// Raises an alarm if the condition `holds` and did not in the call before.
  void raise(bool holds, const std::string& kind, const std::string& what, const std::string& why) {
    const std::string name = kind + " " + what;
    if (!holds)
      seen_.standing.erase(name);
    else if (seen_.standing.insert(name).second)
      alarms_.push_back({kind, why});
  }

  /// Judges x by the window, and adds it if it is no spike. Returns the limit.
  double see_spike(const char* what, double x, std::deque<double>& window, size_t least, double k,
                   const char* kind) {
    const double limit = spike_limit(window, k, least);
    raise(x > limit, kind, what, fmt::format("{} {:.4g} is above {:.4g}", what, x, limit));
    if (x <= limit) add_to(window, x, kWindow);
    return limit;
  }
  void see_divergence(double loss) {
    constexpr double kKept = 0.9, kWorse = 1.1;
    constexpr int64_t kFirst = 20;  // steps without an alarm
    double &smoothed = seen_.smoothed, &least = seen_.least;
    smoothed = seen_.count == 0 ? loss : kKept * smoothed + (1 - kKept) * loss;
    least = seen_.count == 0 ? smoothed : std::min(least, smoothed);
    ++seen_.count;
    raise(seen_.count > kFirst && smoothed > kWorse * least, "divergence", "",
          fmt::format("smoothed loss {:.4g} is above {} times {:.4g}", smoothed, kWorse, least));
  }
  void see_plateau(double loss) {
    add_to(seen_.slope, loss, kSlope);
    if (seen_.slope.size() < kSlope || slope_of(seen_.slope) < 0) return;
    alarms_.push_back({"plateau", fmt::format("the loss does not fall over {} steps", kSlope)});
    seen_.slope.clear();
  }

  void see_tensors(const TensorSums& seen) {
    see_spike("update ratio", update_ratio(seen.whole(Of::Update), seen.whole(Of::Weight)),
              seen_.ratios, 8, k_, "jump");
    const int64_t blocks = seen.sections() - 2;
    double most = 0;
    for (int64_t l = 1; l <= blocks; ++l) most = std::max(most, seen.section(l, Of::Gradient));
    for (int64_t l = 1; l <= blocks; ++l)
      raise(seen.section(l, Of::Gradient) < most / 1000, "dead block", fmt::format("{}", l - 1),
            fmt::format("block {} has a gradient of {:.4g}, another of {:.4g}", l - 1,
                        seen.section(l, Of::Gradient), most));
    const double now = seen.facts(0).weight;  // the token embedding is the first tensor
    if (seen_.embedding == 0) seen_.embedding = now;
    raise(now > 2 * seen_.embedding || now < seen_.embedding / 2, "drift", "",
          fmt::format("the embedding's norm is {:.4g}, and was {:.4g}", now, seen_.embedding));
    see_ranks(seen);
  }
  void see_ranks(const TensorSums& seen) {
    for (int64_t r = 0; r < seen.ranks() && seen.ranks() > 1; ++r) {
      std::deque<double> others;
      for (int64_t other = 0; other < seen.ranks(); ++other)
        if (other != r) others.push_back(seen.of_rank(other));
      const double usual = median_of(others);
      const bool is_large = seen.of_rank(r) > 3 * usual;
      raise(is_large && suspects_.contains(r), "rank", fmt::format("{}", r),
            fmt::format("rank {} has a gradient of {:.4g}, others of {:.4g}", r, seen.of_rank(r),
                        usual));
      is_large ? void(suspects_.insert(r)) : void(suspects_.erase(r));
    }
  }

  static constexpr size_t kWindow = 32, kSlope = 100;
  bool on_;
  double k_;
  bool scaled_;
  DetectorState seen_;
  std::set<int64_t> suspects_;  ///< ranks with a large gradient in the last look
  std::vector<Alarm> alarms_;   ///< of this step
};

}  // namespace ladder
