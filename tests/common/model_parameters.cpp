// Initial values of parameters, and their hash.
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "common/model/init.h"
#include "kernels/arena.h"

namespace ladder {
namespace {

GptConfig small() {
  GptConfig config = preset("tiny");
  config.layers = 3;
  config.channels = 40;
  config.padded_vocab = 300;  // 44 rows of padding
  return config;
}

struct Weights {
  GptConfig config;
  ParamLayout layout{config};
  Arena arena{};
  Tensor flat = arena.alloc(Mem::Param, "params", Dtype::F32, {layout.size()});

  float* data() const { return flat.data<float>(); }
  const ParamSpec& spec(const std::string& name) const { return layout.spec(name); }
};

TEST(Init, HasTheMomentsOfGpt2) {
  Weights w{.config = preset("tiny")};
  init_params(Ctx{}, w.flat, w.layout, 1);
  for (const ParamSpec& spec : w.layout.specs()) {
    double mean = 0, square = 0;
    const auto n = static_cast<double>(spec.live());
    for (int64_t i = 0; i < spec.live(); ++i) {
      const double x = w.data()[spec.offset + i];
      mean += x / n;
      square += x * x / n;
    }
    double std = spec.is_matrix() ? 0.02 : 0;
    if (spec.role == Role::Projection) std = 0.02 / std::sqrt(2.0 * 4);
    EXPECT_NEAR(mean, spec.role == Role::Gain ? 1 : 0, 5 * std / std::sqrt(n)) << spec.name;
    if (spec.is_matrix()) {
      EXPECT_NEAR(std::sqrt(square), std, 5 * std / std::sqrt(2 * n)) << spec.name;
    }
  }
}

TEST(Init, DependsOnSeedNameAndIndexAlone) {
  Weights a{.config = small()}, b{.config = small()};
  b.config.layers = 2;  // another layout: block 1 lies at the same place, the head elsewhere
  Weights c{.config = b.config};
  init_params(Ctx{}, a.flat, a.layout, 1);
  init_params(Ctx{}, c.flat, c.layout, 1);
  const ParamSpec &x = a.spec("lm_head.weight"), &y = c.spec("lm_head.weight");
  ASSERT_NE(x.offset, y.offset);
  EXPECT_EQ(
      std::memcmp(a.data() + x.offset, c.data() + y.offset, 4 * static_cast<size_t>(x.live())), 0);
  init_params(Ctx{}, b.flat, b.layout, 2);
  EXPECT_NE(a.data()[x.offset], b.data()[x.offset]);
}

TEST(Init, PaddingIsZero) {
  Weights w{.config = small()};
  init_params(Ctx{}, w.flat, w.layout, 1);
  const ParamSpec& head = w.spec("lm_head.weight");
  ASSERT_EQ(head.shape.size() - head.live(), 44 * 40);
  for (int64_t i = head.live(); i < head.shape.size(); ++i) EXPECT_EQ(w.data()[head.offset + i], 0);
}

TEST(ParamHash, SeesEveryBitButNotThePadding) {
  Weights w{.config = small()};
  init_params(Ctx{}, w.flat, w.layout, 1);
  const uint64_t hash = param_hash(Ctx{}, w.flat, w.layout);
  const ParamSpec& head = w.spec("lm_head.weight");
  w.data()[head.offset + head.live()] = 1;
  EXPECT_EQ(param_hash(Ctx{}, w.flat, w.layout), hash);

  float& weight = w.data()[w.spec("transformer.h.2.ln_2.bias").offset + 39];
  ASSERT_EQ(weight, 0);
  weight = -0.0f;  // equal as a number, not as bits
  EXPECT_NE(param_hash(Ctx{}, w.flat, w.layout), hash);
  weight = 0;
  std::swap(w.data()[head.offset], w.data()[head.offset + 1]);
  EXPECT_NE(param_hash(Ctx{}, w.flat, w.layout), hash);
}

// Ranks that hold parts of the weights add their sums. So what one element adds may not depend on
// any other.
TEST(ParamHash, IsASumOverElements) {
  Weights w{.config = small()};
  init_params(Ctx{}, w.flat, w.layout, 1);
  const uint64_t whole = param_hash(Ctx{}, w.flat, w.layout);
  float &a = w.data()[3], &b = w.data()[w.spec("lm_head.weight").offset];
  const float was = a;
  a = 1;
  const uint64_t with_a = param_hash(Ctx{}, w.flat, w.layout);
  b = 1;
  const uint64_t with_both = param_hash(Ctx{}, w.flat, w.layout);
  a = was;
  EXPECT_EQ(param_hash(Ctx{}, w.flat, w.layout) - whole, with_both - with_a);
}

}  // namespace
}  // namespace ladder
