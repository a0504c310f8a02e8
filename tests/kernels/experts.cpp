// Routers and experts in `ref` and `cpu`: they follow their definitions. Experts cut over ranks:
// ../layouts.txt.
#include "tests/kernels/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class Experts : public SameBits {
 protected:
  void SetUp() override { use_threads(); }
};

TEST_P(Experts, ATokenTakesTheLargest) {
  const int64_t B = 2, T = 70, E = 7, takes = 3;
  for (const bool sigmoid : {false, true}) {
    const Tensor logits = box.random(sums, {B, T, E}, -3, 3), bias = box.random(sums, {E}, -1, 1);
    for (int64_t i = 0; i < logits.size(); ++i) set(logits, i, std::round(at(logits, i)));  // ties
    for (const bool biased : {false, true}) {
      const Routed r = route(box, logits, takes, biased ? bias : Tensor{}, {sigmoid, true});
      for (int64_t t = 0; t < B * T; ++t) {
        std::vector<int32_t> order(E);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          const auto key = [&](int32_t e) {
            const double s = at(r.scores, t * E + e), plus = biased ? at(bias, e) : 0;
            return sums == Dtype::F64 ? s + plus : static_cast<float>(s + plus);
          };
          return key(a) > key(b);
        });
        std::sort(order.begin(), order.begin() + takes);
        double sum = 0;
        for (int64_t j = 0; j < takes; ++j) sum += at(r.scores, t * E + order[size_t(j)]);
        for (int64_t j = 0; j < takes; ++j) {
          ASSERT_EQ(r.expert.data<int32_t>()[t * takes + j], order[size_t(j)]) << "token " << t;
          ASSERT_NEAR(at(r.weight, t * takes + j), at(r.scores, t * E + order[size_t(j)]) / sum,
                      1e-6);
        }
      }
    }
  }
}

TEST_P(Experts, ScoresLoadsAndLosses) {
  const int64_t B = 3, T = 40, E = 5, takes = 2;
  for (const RouteRule rule : {RouteRule{false, false}, RouteRule{true, false}}) {
    const Tensor logits = box.random(sums, {B, T, E}, -3, 3);
    const Routed r = route(box, logits, takes, {}, rule);
    for (int64_t b = 0; b < B; ++b) {
      std::array<double, 5> P{}, load{};
      double z = 0;
      for (int64_t t = b * T; t < (b + 1) * T; ++t) {
        double power = 0, all = 0;
        for (int64_t e = 0; e < E; ++e) power += std::exp(at(logits, t * E + e));
        for (int64_t e = 0; e < E; ++e) {
          const double x = at(logits, t * E + e);
          const double s = rule.sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x) / power;
          ASSERT_NEAR(at(r.scores, t * E + e), s, 1e-6);
          all += s;
        }
        for (int64_t e = 0; e < E; ++e) P[size_t(e)] += at(r.scores, t * E + e) / all / T;
        for (int64_t j = 0; j < takes; ++j) {
          const int32_t e = r.expert.data<int32_t>()[t * takes + j];
          load[size_t(e)] += 1;
          ASSERT_EQ(at(r.weight, t * takes + j), at(r.scores, t * E + e)) << "not renormalized";
        }
        z += std::pow(std::log(power), 2) / T;
      }
      double balance = 0;
      for (int64_t e = 0; e < E; ++e) {
        ASSERT_EQ(r.load.data<int32_t>()[b * E + e], load[size_t(e)]);
        balance += load[size_t(e)] * E / double(takes * T) * P[size_t(e)];
      }
      EXPECT_NEAR(at(r.losses, b), balance, 1e-5 * balance);
      EXPECT_NEAR(at(r.losses, B + b), z, 1e-5 * z);
    }
  }
}

// A NaN must reach the loss, and no index may leave its range.
TEST_P(Experts, NaNLogitsStayNaN) {
  const int64_t T = 5, E = 6, takes = 3;
  for (const bool sigmoid : {false, true})
    for (const int64_t nans : {1, 6}) {
      const Tensor logits = box.random(sums, {1, T, E}), y = box.random({T * takes, 4});
      for (int64_t e = 0; e < nans; ++e) set(logits, 2 * E + (e + 5) % E, NAN);
      const Routed r = route(box, logits, takes, {}, {sigmoid, false});
      for (int64_t i = 0; i < T * takes; ++i) {
        const int32_t e = r.expert.data<int32_t>()[i];
        ASSERT_TRUE(e >= 0 && e < E && (i % takes == 0 || e > r.expert.data<int32_t>()[i - 1]));
      }
      const Tensor out = box.empty({1, T, 4});
      k.unpermute_forward(ctx, out, y, sorted(box, r.expert, E), r.expert, r.weight);
      for (int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(at(out, i)), i / 4 == 2);
      EXPECT_TRUE(std::isnan(at(r.losses, 0)) && std::isnan(at(r.losses, 1)));
    }
}

TEST_P(Experts, RowsAreSortedByExpertThenByToken) {
  const int64_t B = 3, T = 50, E = 6, takes = 2;
  const Tensor expert = choices(box, B, T, takes, E - 1);  // the last expert has no tokens
  for (const int64_t capacity : {0, 1, 7, 1000}) {
    const ExpertRows rows = sorted(box, expert, E, capacity);
    std::vector<std::vector<int32_t>> want(E);
    for (int32_t i = 0; i < B * T * takes; ++i) {
      auto& of = want[size_t(expert.data<int32_t>()[i])];
      const auto same = [&](int32_t j) { return j / (T * takes) == i / (T * takes); };
      const int64_t met = std::count_if(of.begin(), of.end(), same);
      const bool kept = capacity == 0 || met < capacity;
      if (kept)
        of.push_back(i);
      else
        EXPECT_EQ(rows.row.data<int32_t>()[i], kNoRow);
    }
    int32_t row = 0;
    for (size_t e = 0; e < want.size(); ++e) {
      EXPECT_EQ(rows.offsets.data<int32_t>()[e], row);
      for (const int32_t pair : want[e]) {
        EXPECT_EQ(rows.from.data<int32_t>()[row], pair);
        EXPECT_EQ(rows.row.data<int32_t>()[pair], row++);
      }
    }
    EXPECT_EQ(rows.offsets.data<int32_t>()[E], row);
  }
}

TEST_P(Experts, ElsewhereHasNoRow) {
  const Tensor expert = choices(box, 2, 5, 2, 4), out = box.empty({2, 5, 3});
  const auto is_elsewhere = [](int64_t i) { return i % 3 == 0 || i == 1; };  // all of token 0
  for (int64_t i = 0; i < 20; ++i)
    if (is_elsewhere(i)) expert.data<int32_t>()[i] = kElsewhere;
  const ExpertRows rows = sorted(box, expert, 4);
  EXPECT_EQ(used(rows), 12);
  for (int64_t i = 0; i < 20; ++i)
    EXPECT_EQ(rows.row.data<int32_t>()[i] == kNoRow, is_elsewhere(i));
  k.unpermute_forward(ctx, out, box.filled({20, 3}, 1), rows, expert, {});
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(is_minus_zero(at(out, i)), i < 3) << i;
}

INSTANTIATE_TEST_SUITE_P(Tables, Experts, ::testing::ValuesIn(tables_of_all_dtypes()), table_name);

}  // namespace
}  // namespace ladder::test
