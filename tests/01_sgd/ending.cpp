// Runs that end for reasons other than an exception. A signal lets a run finish its step. A run
// that has not done what was asked says so by its exit status.
#include <algorithm>

#include "tests/common/refusal.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

int64_t lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

class Ending : public SameTrace, public ::testing::WithParamInterface<std::string> {
 protected:
  static constexpr const char* kEndless = "--steps 1000000 --layers 1 --trace trace.jsonl ";
};
INSTANTIATE_TEST_SUITE_P(Run, Ending, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

/// What the loop over steps of each main() must do. Under a sanitizer a run takes long.
class EndingOfEach : public Ending {};
INSTANTIATE_TEST_SUITE_P(Run, EndingOfEach,
                         ::testing::ValuesIn(kSanitized ? some_chapters_from("01_sgd")
                                                        : chapters_from("01_sgd")),
                         chapter_name);

TEST_P(EndingOfEach, ASignalLetsTheStepEnd) {
  for (const auto& [signal, status] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
    for (const char* name : {"trace.jsonl", "saved"}) std::filesystem::remove_all(path(name));
    const Program program = signalled(GetParam(), std::string("kill -") + signal + " $run");
    const std::string flags = std::string(kEndless) + "--quiet --save saved --report report.json";
    const Ended ended = run(program, small_run(flags));
    const int64_t done = lines_in(read("trace.jsonl"));
    EXPECT_EQ(ended.status, status) << ended.err;
    EXPECT_EQ(ended.err, "interrupted: SIG" + std::string(signal) + " after " +
                             std::to_string(done) +
                             " of 1000000 steps; the checkpoint is in saved\n");
    EXPECT_FALSE(std::filesystem::exists(path("trace.jsonl.partial")));
    const auto report = nlohmann::json::parse(read("report.json"));
    EXPECT_EQ(report["steps"], done);
    EXPECT_EQ(report["interrupted"], std::string("SIG") + signal);

    // A run goes on from what was saved as if no signal had come.
    const Trace first{.range = {0, done}, .steps = parse_trace(read("trace.jsonl"))};
    const Trace rest = trace(GetParam(), "--layers 1 --load saved", {done, done + 2});
    EXPECT_TRUE(same_trace(joined(first, rest), trace(GetParam(), "--layers 1", {0, done + 2})));
  }
}

TEST_P(Ending, ASecondSignalEndsAtOnce) {
  const std::string both = "kill -INT $run; kill -TERM $run";
  const Ended ended = run(signalled(GetParam(), both),
                          small_run(std::string(kEndless) + "--backend ref --seq-len 16"));
  EXPECT_TRUE(ended.status == 143 || ended.status == 130) << ended.status << ended.err;
}

TEST_P(Ending, WithoutSaveNothingIsSaved) {
  // A run that was stopped writes no text, either. (Programs of ranks never do.)
  const bool writes = GetParam() == "01_sgd";
  const Ended ended = run(signalled(GetParam(), "kill -TERM $run"),
                          small_run(std::string(kEndless) + (writes ? "--sample 1000000" : "")));
  EXPECT_EQ(ended.status, 143);
  EXPECT_NE(ended.err.find("; nothing is saved without --save\n"), std::string::npos) << ended.err;
  EXPECT_NE(ended.out.find("validation loss              none"), std::string::npos) << ended.out;
}

// A resume may change flags: it is another run from there on, and says so.
TEST_P(Ending, AResumeSaysWhatHasChanged) {
  const auto said = [&](const std::string& flags) {
    return train(GetParam(), "--layers 1 --steps 2 --load saved " + flags).out;
  };
  train(GetParam(), "--layers 1 --steps 1 --save saved");
  EXPECT_EQ(said("").find("note: "), std::string::npos);
  EXPECT_NE(said("").find("goes on from saved: 1 of 2 steps are done\n"), std::string::npos);
  EXPECT_NE(said("--batch 8").find("note: saved was written with --batch 4, now 8\n"),
            std::string::npos);
  EXPECT_NE(said("--seed 2").find("note: saved was written with --seed 1, now 2\n"),
            std::string::npos);
  write("other.txt", "!" + read("text.txt").substr(1));
  EXPECT_NE(said("--data other.txt").find("note: saved was written with another text\n"),
            std::string::npos);
}

// Without --save a run of no step is a look at a model. Programs of ranks write no text.
TEST_P(EndingOfEach, ARunWithoutAStepReportsAndWrites) {
  const auto look = [&](const std::string& flags) {
    return run(GetParam(), small_run("--layers 1 --steps 0 --report report.json " + flags));
  };
  const Ended written = look("--sample 3");
  if (written.status == 2) {
    EXPECT_NE(written.err.find("--sample"), std::string::npos) << written.err;
    EXPECT_EQ(look("").status, 0);
  } else {
    EXPECT_NE(written.out.find("---- sample\n"), std::string::npos) << written.err;
  }
  const auto report = nlohmann::json::parse(read("report.json"));
  EXPECT_EQ(report["steps"], 0);
  EXPECT_TRUE(report["final_loss"].is_null());
}

// The first update throws the weights out of range, after a loss and a norm that are finite.
TEST_P(EndingOfEach, WeightsThatAreNoNumbersAreToldByTheStatus) {
  must_end_with(3);
  const std::string sgd = GetParam() == "01_sgd" ? "" : "--optimizer sgd ";
  for (const std::string steps : {"1", "3"}) {
    const Ended ended = train(GetParam(), sgd +
                                              "--layers 1 --lr 3e38 --trace trace.jsonl "
                                              "--report report.json --steps " +
                                              steps);
    EXPECT_NE(ended.err.find("error: the run came to its end, but it did not train: its "
                             "validation loss is NaN or infinite\n"),
              std::string::npos)
        << ended.err;
    EXPECT_EQ(std::to_string(lines_in(read("trace.jsonl"))), steps);
    const auto report = nlohmann::json::parse(read("report.json"));
    EXPECT_TRUE(report["val_loss"].is_null());
    EXPECT_NE(report["not_done"], "");
  }
}

// `ulimit -f` stands for a full disk: to mount one takes privileges, and /dev/full is no file.
TEST_P(Ending, AFullDiskUnderTheTraceLeavesTheCheckpoint) {
  const std::string flags = "--layers 1 --channels 16 --heads 2 --quiet --trace trace.jsonl ";
  const Program limited{GetParam(), {"bash", "-c", "ulimit -f 200; exec \"$@\"", "bash"}};
  const Ended ended = run(limited, small_run(flags + "--steps 1500 --save saved"));
  EXPECT_EQ(ended.status, 3) << ended.err;
  EXPECT_NE(ended.err.find("trace.jsonl: cannot be written: File too large"), std::string::npos)
      << ended.err;
  EXPECT_EQ(lines_in(ended.err), 2);
  EXPECT_FALSE(std::filesystem::exists(path("trace.jsonl")));
  EXPECT_GT(lines_in(read("trace.jsonl.partial")), 500);
  EXPECT_EQ(train(GetParam(), flags + "--steps 1501 --load saved").err, "");
}

TEST_P(Ending, AFullDiskUnderTheCheckpointKeepsTheOneBefore) {
  const std::string flags = "--layers 1 --channels 16 --heads 2 --quiet --save saved ";
  train(GetParam(), flags + "--steps 1");
  const Program limited{GetParam(), {"bash", "-c", "ulimit -f 20; exec \"$@\"", "bash"}};
  const Ended ended = run(limited, small_run(flags + "--steps 2 --load saved"));
  EXPECT_EQ(ended.status, 3) << ended.err;
  EXPECT_NE(ended.err.find("cannot be written: File too large"), std::string::npos) << ended.err;
  EXPECT_EQ(train(GetParam(), flags + "--steps 2 --load saved").err, "");
}

}  // namespace
}  // namespace ladder::test
