// What the caller of a program may have set up, such as streams that are full. A run comes to its
// end with its usual trace, or it is refused. If it cannot print something, it says so.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class Surroundings : public Programs, public ::testing::WithParamInterface<std::string> {
 protected:
  /// The program as a line of a shell starts it, which has it as "$@".
  static Program by(const std::string& line) { return {GetParam(), {"sh", "-c", line, "sh"}}; }
};
INSTANTIATE_TEST_SUITE_P(Streams, Surroundings, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

TEST_P(Surroundings, AFullStderrLeavesTheTrace) {
  const std::string flags = "--steps 1 --layers 1 --trace ";
  train(GetParam(), flags + "want.jsonl");
  train(by("exec \"$@\" 2>/dev/full"), flags + "trace.jsonl");
  EXPECT_EQ(read("trace.jsonl"), read("want.jsonl"));
}

TEST_P(Surroundings, LostOutputIsTold) {
  const std::string flags = "--steps 1 --layers 1 --trace ";
  train(GetParam(), flags + "want.jsonl");
  const Ended ended = run(by("exec \"$@\" >/dev/full"), small_run(flags + "trace.jsonl"));
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.err,
            "error: standard output cannot be written: is its disk full, or its reader gone?\n");
  EXPECT_EQ(read("trace.jsonl"), read("want.jsonl"));
}

// A sanitizer takes more addresses than the limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(Surroundings, MemoryForFewThreads) {
  const auto before = files();
  const Ended ended = run(by("ulimit -s 8192; ulimit -v 400000; exec \"$@\""),
                          small_run("--steps 1 --layers 1 --threads 64 --trace t --quiet"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_TRUE(ended.err.starts_with("error: --threads 64: only ")) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
  EXPECT_TRUE(files() == before);
}
#endif

// JSON is UTF-8, and a path may hold any bytes.
TEST_P(Surroundings, APathThatIsNotUtf8StandsInTheReport) {
  write("\xff.txt", read("text.txt"));
  train(GetParam(), "--steps 1 --layers 1 --data \xff.txt --save saved --report report.json");
  EXPECT_NE(read("report.json").find("\xef\xbf\xbd.txt"), std::string::npos);
}

}  // namespace
}  // namespace ladder::test
