// 27_data_order: where epochs end a run, orders that a checkpoint refuses, and files that are not
// whole. Other runs: equal_runs.txt.
#include <fmt/format.h>

#include "tests/26_packing/document_pair.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class DataOrderRuns : public SameTraceSmall {
 protected:
  DataOrderRuns() {
    for (const auto& [name, count] : {std::pair{"a.bin", 30U}, {"b.bin", 20U}, {"c.bin", 20U}})
      write_documents(path(name), some_documents(count));
  }

  void expect_refused(const std::string& given, const std::string& says) const {
    Programs::expect_refused("27_data_order", given, says);
  }

  const std::string files = "--data c.bin --tokens uint16 --documents --pack-window 8 --batch 4 ",
                    flags = files + "--sources a.bin:3,b.bin:1 ";
};

// The last step is that of the run, for --save and --load, too.
TEST_F(DataOrderRuns, EpochsEndARun) {
  const auto once =
      report("27_data_order", flags + "--layers 2 --epochs 1 --steps 100 --save half");
  const int64_t steps = once["steps"];
  EXPECT_GT(steps, 5);
  EXPECT_LT(steps, 20);
  const auto& sources = once["extra"]["sources"];
  EXPECT_EQ(sources[0]["dealt"], 30);  // a is at its end
  EXPECT_EQ(sources[0]["documents"], 30);
  EXPECT_NEAR(sources[1]["dealt"].get<double>(), 10, 1);
  EXPECT_NE(read("half/current/checkpoint.json").find(fmt::format("\"step\": {}", steps)),
            std::string::npos);
  expect_refused(flags + "--layers 2 --epochs 1 --steps 100 --load half", "legal are more epochs");

  const auto rest = [&](const std::string& how) {
    return trace("27_data_order", flags + "--epochs 3 --load half " + how, {steps, steps + 4});
  };
  EXPECT_TRUE(same_trace(rest("--ranks 2"), rest("--unpacked")));
}

TEST_F(DataOrderRuns, ACheckpointRefusesAnotherOrder) {
  train("27_data_order", flags + "--steps 1 --save half");
  const std::string load = " --steps 2 --load half ";
  const auto refused = [&](const std::string& given, const std::string& says) {
    expect_refused(given + load, "its state order: " + says);
  };
  refused(flags + "--pack greedy", "its rows were planned with");
  refused(files + "--sources a.bin:2,b.bin:1", "the weight of source a.bin was 3; legal is the");
  refused(files + "--sources a.bin:3", "it has 2 sources; legal are as many, not 1");
  refused(files + "--sources a.bin:3,c.bin:1",
          "source c.bin: its files have changed; the checkpoint has 1 file, ");
  std::filesystem::create_directory(path("moved"));
  for (const std::string name : {"a.bin", "a.idx"})
    std::filesystem::rename(path(name), path("moved/" + name));
  train("27_data_order", files + "--sources moved:3,b.bin:1" + load);  // the same files
  // Documents end elsewhere: the tokens are the same.
  std::string index = read("b.idx");
  ++index[34], --index[38], index[34 + 4 * 20 + 8] += 2;
  write("b.idx", index);
  refused(files + "--sources moved:3,b.bin:1", "source b.bin: its files have changed");
}

// Otherwise it would train on the file that validates.
TEST_F(DataOrderRuns, ARunGoesOnWithItsSourcesOrWithoutThem) {
  train("27_data_order", flags + "--steps 1 --save sources");
  train("27_data_order", files + "--steps 1 --save documents");
  expect_refused(files + "--steps 2 --load sources",
                 "--load sources: its run read --sources; legal");
  expect_refused(flags + "--steps 2 --load documents",
                 "--load documents: its run read --data, without --sources; legal");
  expect_refused("--data c.bin --tokens uint16 --batch 4 --steps 2 --load documents",
                 "its state documents: it was saved with --documents; legal is the same");
  train("27_data_order",
        files + "--sources a.bin:1,b.bin:1 --new-weights --steps 2 --load sources");
}

// A file that validates alone, as its own 20 documents say: of 2 + (11 i + 20) mod 39 tokens, each
// has one target less.
TEST_F(DataOrderRuns, AFileForValidationAloneIsTakenWhole) {
  int64_t all = 0;
  for (int64_t i = 0; i < 20; ++i) all += 1 + (11 * i + 20) % 39;
  const auto targets = [&](const std::string& given) {
    return report("27_data_order", given + " --steps 1")["val_targets"].get<int64_t>();
  };
  EXPECT_EQ(targets(flags), all);
  EXPECT_EQ(targets(flags + "--ranks 2"), all);
  EXPECT_EQ(targets(flags + "--eval-targets 1"), 1 + 20);  // the first document
  EXPECT_LT(targets(files + "--sources c.bin:1"), all / 5);
}

// A hard link is the same file: its last tenth validates.
TEST_F(DataOrderRuns, TheHeldOutTenthIsFoundByAnyName) {
  for (const std::string end : {".bin", ".idx"})
    std::filesystem::create_hard_link(path("c" + end), path("link" + end));
  const auto report = this->report("27_data_order", files + "--sources link.bin:1 --steps 1");
  EXPECT_EQ(report["extra"]["sources"][0]["documents"], 18);
}

TEST_F(DataOrderRuns, NegativeControlAStateThatIsAnother) {
  const Trace first = trace("27_data_order", flags + "--save half", {0, kHalf});
  const auto rest = [&] { return trace("27_data_order", flags + "--load half", {kHalf, kSteps}); };
  const Trace whole = joined(first, rest());
  nlohmann::json state =
      nlohmann::json::parse(read("half/current/checkpoint.json"))["state"]["order"];
  ++state["row"].get_ref<int64_t&>();
  set_state(path("half"), "order", state);
  EXPECT_TRUE(different_trace(whole, joined(first, rest())));
}

// All before the first step. What else is no pair of files: tests/26_packing/document_file.cpp.
TEST_F(DataOrderRuns, RefusesFilesThatAreNotWhole) {
  const std::string before = read("b.bin");
  write("b.bin", before.substr(0, before.size() - 2));
  expect_refused(flags, "--sources b.bin: its index b.idx disagrees: it has 4");
  write_documents(path("b.bin"), {});
  expect_refused(flags, "--sources b.bin: ");
}

}  // namespace
}  // namespace ladder::test
