// --memory-limit: what does not fit is refused before anything is allocated or written, and told
// which policy fits.
#include "chapters/06_checkpointing/recompute.h"
#include "tests/common/memory.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class MemoryLimit : public Refusals {
 protected:
  nlohmann::json trained(const std::string& flags) const {
    return report(GetParam(), "--steps 1 " + flags);
  }
  int64_t total(const std::string& flags) const {
    const auto all = trained(flags);
    int64_t sum = 0;
    for (int mem = 0; mem < kMemCount; ++mem) sum += measured(all, static_cast<Mem>(mem));
    return sum;
  }
  static std::string limit(int64_t bytes) { return " --memory-limit " + std::to_string(bytes); }
};
INSTANTIATE_TEST_SUITE_P(Limit, MemoryLimit, ::testing::Values("06_checkpointing"), chapter_name);

TEST_P(MemoryLimit, NamesTheFastestPolicyThatFitsAndItTrains) {
  std::map<std::string, int64_t> bytes;
  for (const std::string& policy : Recompute::all(8))
    bytes[policy] = total("--recompute " + policy);
  const int64_t least = bytes.at("offload");
  for (const auto& [policy, most] : bytes) {
    const int64_t allowed = most;
    std::string fits;
    for (const std::string& other : Recompute::all(8))
      if (fits.empty() && bytes.at(other) <= allowed) fits = other;
    ASSERT_FALSE(fits.empty());
    if (fits != "none")
      expect_refused(BadInput{limit(allowed),
                              fmt::format("the plan takes {} bytes, more than --memory-limit {}; "
                                          "--recompute {} takes {}",
                                          bytes.at("none"), allowed, fits, bytes.at(fits))});
    EXPECT_EQ(total("--recompute " + fits + limit(allowed)), bytes.at(fits)) << policy;
    EXPECT_GE(most, least) << policy;
  }
}

TEST_P(MemoryLimit, IsAnUpperBoundToTheByte) {
  const int64_t least = total("--recompute offload");
  trained("--recompute offload" + limit(least));
  expect_refused(BadInput{
      "--recompute offload" + limit(least - 1),
      fmt::format("more than --memory-limit {}, and so does every --recompute", least - 1)});
}

TEST_P(MemoryLimit, KnowsPrecisionsAndMicroBatches) {
  const std::string narrow = "--batch 16 --precision bf16 --micro-batch 4 ";
  const int64_t kept = total(narrow), full = total(narrow + "--recompute full");
  expect_refused(BadInput{narrow + limit(kept - 1), "--recompute selective takes"});
  trained(narrow + "--recompute full" + limit(full));
  expect_refused(BadInput{narrow + limit(1), "a smaller --micro-batch, --seq-len or model"});
}

TEST_P(MemoryLimit, PrintsThePlan) {
  const Ended ended = run(GetParam(), small_run(limit(1000)));
  EXPECT_EQ(ended.status, 2);
  for (const char* part : {"Activation", "Optim"})
    EXPECT_NE(ended.out.find(part), std::string::npos) << ended.out;
}

TEST_P(MemoryLimit, HasUnits) {
  for (const auto& [text, bytes] : {std::pair{"5MB", 5L << 20}, {"7kb", 7L << 10}, {"9", 9L}})
    expect_refused(BadInput{"--memory-limit " + std::string(text),
                            "more than --memory-limit " + std::to_string(bytes) + ","});
  for (const char* enough : {"1GB", "8TB", "7EB", "0"})
    trained("--memory-limit " + std::string(enough));
}

}  // namespace
}  // namespace ladder::test
