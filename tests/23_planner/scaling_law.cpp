// Compute-optimal models: the numbers of the papers, and that the optimum is one.
#include "chapters/23_planner/scaling_law.h"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "chapters/23_planner/law_file.h"
#include "tests/common/programs.h"

namespace ladder::planner {
namespace {

// At Gopher's budget Besiroglu's fit has 18.4 tokens for a parameter; Hoffmann's, whose exponents
// are printed with two digits, 92.6.
TEST(ScalingLaw, TokensAParameter) {
  EXPECT_NEAR(optimum(kBesiroglu, kGopher).tokens_a_parameter(), 18.4, 0.1);
  EXPECT_NEAR(optimum(kHoffmann, kGopher).tokens_a_parameter(), 92.6, 0.5);
  const Optimum first = approaches(kGopher)[1].at;
  EXPECT_NEAR(first.parameters / 1e9, 67, 0.01);
  EXPECT_NEAR(first.tokens / 1e12, 1.43, 0.01);
}

TEST(ScalingLaw, TheOptimumIsTheLeastLossOfItsBudget) {
  for (const LossLaw& law : {kHoffmann, kBesiroglu})
    for (const double flops : {1e18, 1e21, 1e25}) {
      const auto [N, D] = optimum(law, flops);
      EXPECT_NEAR(6 * N * D / flops, 1, 1e-12);
      for (const double factor : {0.8, 0.95, 1.05, 1.25})
        EXPECT_GT(law.loss(N * factor, D / factor), law.loss(N, D)) << flops << " " << factor;
    }
}

// arXiv 2001.08361, appendix A: 1.3e9 parameters at one petaflop-day, and 0.73 for the exponent.
TEST(ScalingLaw, KaplansModelsAreLarger) {
  const Optimum day = approaches(kPetaflopDay)[0].at;
  EXPECT_NEAR(day.parameters, 1.3e9, 1);
  const Optimum ten = approaches(10 * kPetaflopDay)[0].at;
  EXPECT_NEAR(ten.parameters / day.parameters, 5.37, 0.01);
  EXPECT_GT(approaches(kGopher)[0].at.parameters, 10 * approaches(kGopher)[1].at.parameters);
}

// Without inference it is the optimum; with more, a smaller model learns from more tokens, comes to
// the same loss, and no neighbor takes less.
TEST(ScalingLaw, WhatIsUsedForLongIsSmaller) {
  for (const LossLaw& law : {kHoffmann, kBesiroglu})
    for (const double flops : {1e21, kGopher}) {
      const Optimum best = optimum(law, flops);
      EXPECT_NEAR(served(law, flops, 0).parameters / best.parameters, 1, 1e-3);
      double last = best.parameters;
      for (const double inference : {1e11, 1e12, 1e13, 1e15}) {
        const Optimum at = served(law, flops, inference);
        EXPECT_LT(at.parameters, last);
        last = at.parameters;
        EXPECT_NEAR(law.loss(at.parameters, at.tokens), law.loss(best.parameters, best.tokens),
                    1e-9);
        EXPECT_LT(lifetime(at, inference), lifetime(best, inference));
        for (const double factor : {0.97, 1.03}) {
          const double N = at.parameters * factor, left = law.loss(at.parameters, at.tokens) -
                                                          law.E - law.A / std::pow(N, law.alpha);
          if (left <= 0) continue;  // so small a model does not come to the loss
          const Optimum near{N, std::pow(law.B / left, 1 / law.beta)};
          EXPECT_GT(lifetime(near, inference), lifetime(at, inference)) << factor;
        }
      }
    }
}

// LADDER_LAW: what law.py of chapter 34 has written.
TEST(ScalingLaw, OfChapter34IsRead) {
  const LossLaw law = read_law(LADDER_LAW);
  EXPECT_GT(law.E, 0);
  EXPECT_LT(law.E, 2);
  const Optimum at = optimum(law, 3e11);
  EXPECT_NEAR(6 * at.parameters * at.tokens / 3e11, 1, 1e-12);
  EXPECT_LT(law.loss(at.parameters, at.tokens), law.loss(2 * at.parameters, at.tokens / 2));
}

class LawFile : public test::Programs {
 protected:
  /// The numbers of each row that begins with `name`, one after the other.
  static std::string rows(const std::string& out, const std::string& name) {
    std::istringstream lines(out);
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(name)) found += line.substr(42) + "\n";
    return found;
  }
};

TEST_F(LawFile, IsARowBesideThePapers) {
  write("own.json", R"({"E": 1.8172, "A": 482.01, "alpha": 0.3478, "B": 2085.43, "beta": 0.3658})");
  const auto ended =
      run("23_planner", test::words("--compute 1e21 --inference-tokens 1e12 --law own.json"));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const std::string own = rows(ended.out, "own.json"), loss = "  loss 2.2854";
  const auto at = own.find("  loss");
  ASSERT_NE(at, std::string::npos) << ended.out;
  EXPECT_EQ(own.substr(0, at) + own.substr(at + loss.size()), rows(ended.out, "Besiroglu"));
  const Optimum best = optimum(kBesiroglu, 1e21);
  EXPECT_NEAR(std::stod(own.substr(at + 7)), kBesiroglu.loss(best.parameters, best.tokens), 5e-5);
}

TEST_F(LawFile, IsRefusedIfItIsNone) {
  write("zero.json", R"({"E": 1, "A": 2, "alpha": 0.3, "B": 4, "beta": 0})");
  write("list.json", "[1, 2]");
  write("words.json", "E = 1");
  for (const auto& [name, says] :
       {std::pair<std::string, std::string>{"zero.json", "B and beta above 0; beta is not"},
        {"list.json", "above 0; E is not"},
        {"words.json", "words.json: malformed JSON"},
        {"no.json", "no.json: no such file"}}) {
    const auto ended = run("23_planner", test::words("--compute 1e20 --law " + name));
    EXPECT_EQ(ended.status, 2) << name;
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace ladder::planner
