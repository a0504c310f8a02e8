// What a report says of a draft: how many of its tokens are kept, and how many a pass gives.
//
// It also measures how near the draft is to the model where its proposals met the model: 1 - TV,
// where TV is half the sum over tokens of |p - q|. That is the share that rejection sampling keeps,
// and no way to draw from both distributions agrees more often.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/draw.h"
#include "kernels/math.h"

namespace ladder {

class Agreement {
 public:
  /// Measures between these two draws. Greedy draws are not watched.
  void watch(Draw& draft, Draw& model) {
    draft.watch = [this](auto x, const auto& kept, const DrawKey& key) {
      proposed_[{key.line, key.answer}][key.position] = probabilities(x, kept);
    };
    model.watch = [this](auto x, const auto& kept, const DrawKey& key) { compare(x, kept, key); };
  }

  /// @param k how many tokens are proposed at a time
  nlohmann::json report(const BatchCounts& c, int64_t k) const {
    const double kept = ratio(static_cast<double>(c.accepted), c.compared);
    double expected = 1;  // (1 - kept^(k+1)) / (1 - kept)
    for (int64_t i = 0; i < k; ++i) expected = 1 + kept * expected;
    return {{"proposed", c.proposed},
            {"compared", c.compared},
            {"accepted", c.accepted},
            {"acceptance", kept},
            {"one_minus_tv", ratio(near_, count_)},
            {"tokens_a_pass", ratio(static_cast<double>(c.accepted + c.checked), c.checked)},
            {"tokens_a_pass_expected", expected}};
  }
  static std::string text(const nlohmann::json& report) {
    const auto figure = [&](const char* name) { return report.at(name).get<double>(); };
    std::string text = fmt::format(
        "draft: {:.3f} of its tokens are kept; {:.2f} tokens a pass, by the formula {:.2f}",
        figure("acceptance"), figure("tokens_a_pass"), figure("tokens_a_pass_expected"));
    if (figure("one_minus_tv") > 0) text += fmt::format("; 1 - TV {:.3f}", figure("one_minus_tv"));
    return text;
  }

 private:
  using Row = std::vector<double>;

  static double ratio(double a, int64_t b) { return b == 0 ? 0 : a / static_cast<double>(b); }
  static Row probabilities(std::span<const float> x, const std::vector<int32_t>& kept) {
    Row p(x.size());
    float most = x[static_cast<size_t>(kept.front())];
    for (const int32_t token : kept) most = std::max(most, x[static_cast<size_t>(token)]);
    double all = 0;
    for (const int32_t token : kept) {
      const auto at = static_cast<size_t>(token);
      p[at] = math::exp(x[at] - most);
      all += p[at];
    }
    for (double& one : p) one /= all;
    return p;
  }
  void compare(std::span<const float> x, const std::vector<int32_t>& kept, const DrawKey& key) {
    auto& rows = proposed_[{key.line, key.answer}];
    if (const auto found = rows.find(key.position); found != rows.end()) {
      const Row p = probabilities(x, kept);
      const Row& q = found->second;
      near_ += 1;
      for (size_t i = 0; i < p.size(); ++i) near_ -= std::abs(p[i] - q[i]) / 2;
      ++count_;
    }
    // Proposals behind a token that was refused come again.
    rows.erase(rows.begin(), rows.upper_bound(key.position));
  }

  std::map<std::pair<int64_t, int64_t>, std::map<int64_t, Row>> proposed_;  ///< by answer, position
  double near_ = 0;                                                         ///< the sum of 1 - TV
  int64_t count_ = 0;
};

}  // namespace ladder
