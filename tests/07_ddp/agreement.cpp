// If mpirun starts ranks with different flags or files, they say so before they train. Without this
// check each of these runs hung, or trained something that nobody had asked for.
#include <fmt/ranges.h>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

/// What ranks 1 and 2 of 3 are started with, beside what all have, and what is said of it.
struct Different {
  std::string flags;
  std::string says;
  std::string of_rank_0 = "";
};

class RanksThatDiffer : public Programs {
 protected:
  const std::string chapter = "07_ddp";

  /// `first` as rank 0, `others` as ranks 1 and 2. Each chooses by its rank: `mpirun A : B` ends in
  /// a segmentation fault of Open MPI 5.0.7.
  Ended started(const std::vector<std::string>& first, const std::string& other_chapter,
                const std::vector<std::string>& others) const {
    Program program = under_mpirun(other_chapter, 3);
    const std::string choose =
        fmt::format("[ $OMPI_COMM_WORLD_RANK = 0 ] && exec {}/ch{} {}\nexec \"$@\"",
                    LADDER_PROGRAMS, chapter, fmt::join(first, " "));
    for (const std::string& word : {std::string("sh"), std::string("-c"), choose, chapter})
      program.launcher.push_back(word);
    return run(program, others);
  }
  /// No hang, one line that names the flag and the ranks.
  static void expect_refused(const Ended& ended, const std::string& says) {
    EXPECT_EQ(ended.status, 2) << ended.err;
    const size_t at = ended.err.find("error: ");
    ASSERT_NE(at, std::string::npos) << ended.err;
    const std::string line = ended.err.substr(at, ended.err.find('\n', at) - at);
    EXPECT_NE(line.find(says), std::string::npos) << line << "\n" << says;
    EXPECT_EQ(at, ended.err.rfind("error: ")) << ended.err;
  }
  void expect_refused(const Different& d) const {
    SCOPED_TRACE(d.flags);
    const std::string all = "--layers 1 --channels 16 --heads 2 --batch 12 --reduction tree ";
    expect_refused(started(small_run(all + d.of_rank_0), chapter, small_run(all + d.flags)),
                   d.says);
  }
};

TEST_F(RanksThatDiffer, InAFlag) {
  for (const Different& d : std::initializer_list<Different>{
           {"--seed 2", "--seed is 1 here, but 2 on ranks 1, 2; legal is the same on every rank"},
           {"--precision bf16", "--precision is fp32 here, but bf16 on"},
           {"--seq-len 8", "--seq-len is not given here, but 8 on"},
           {"--vocab 300", "--vocab is not given here, but 300 on"},  // changes the model, too
           {"--fixed-loss-scale", "--fixed-loss-scale is false here, but true on"},
           {"--backend ref", "--backend is cpu here, but ref on"},
           {"--fault skip:all_reduce:1", "--fault is not given here, but skip:all_reduce:1 on"},
           {"--timeout 0", "--timeout is 600 here, but 0 on"},
           {"--trace x.jsonl", "--trace is not given here, but given on"},
       })
    expect_refused(d);
}

TEST_F(RanksThatDiffer, InAFile) {
  const std::string text = read("text.txt");
  write("longer.txt", text + "more");
  write("other.txt", "O" + text.substr(1));
  expect_refused({"--data longer.txt", "--data is 4000 bytes, "});
  expect_refused({"--data other.txt", "--data is 4000 bytes, "});
  std::string large(3'500'000, 'a');
  write("large.txt", large);
  large.replace(large.size() / 2, 100'000, 100'000, 'b');  // 64 pages are compared
  write("middle.txt", large);
  expect_refused({"--data middle.txt", "--data is 3500000 bytes, ", "--data large.txt"});

  const std::string small = "--layers 1 --channels 16 --heads 2 --batch 12 --reduction tree ";
  train(chapter, small + "--steps 1 --save one");
  train(chapter, small + "--steps 2 --save two");
  train(chapter, small + "--steps 1 --seed 2 --save other");
  for (const std::string other : {"two", "other"})
    expect_refused({"--load " + other, "--load is of step 1: ", "--load one"});
  expect_refused({"--load one", "--load is not given here, but of step 1: "});
}

TEST_F(RanksThatDiffer, InTheTokenizer) {
  for (const char* flags : {"--out one", "--split llama3 --out other"})
    run("24_tokenizer", words(fmt::format("train --data text.txt --vocab 300 {}", flags)));
  expect_refused({"--tokenizer other", "the tokenizer is ", "--tokenizer one"});
}

TEST_F(RanksThatDiffer, InTheProgram) {
  const std::vector<std::string> args = small_run("--batch 12 --reduction tree");
  expect_refused(started(args, "08_zero1", args),
                 "the program is 07_ddp: ranks that split the batch here, but 08_zero1: ");
  expect_refused(started(args, "01_sgd", small_run("")),
                 "error: rank 1: --ranks must be 1, not 3: this chapter knows one rank");
}

TEST_F(RanksThatDiffer, InWhatIsRefused) {
  expect_refused({"--lr -1", "error: rank 1: --lr must be a finite number, at least 0, not -1"});
  expect_refused({"--ranks 2", ": --ranks 2, but mpirun has started 3; legal: 3, or no --ranks"});
  expect_refused({"", "error: --lr must be a finite number", "--lr -1"});
}

// What a rank may have of its own.
TEST_F(RanksThatDiffer, InWhatChangesNothing) {
  write("copy.txt", read("text.txt"));
  const std::string all = "--batch 12 --reduction tree --steps 1 ";
  const Ended ended =
      started(small_run(all + "--trace a.jsonl --ranks 3"), chapter,
              small_run(all + "--trace b.jsonl --threads 2 --quiet --data copy.txt"));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(files().contains("a.jsonl"));
  EXPECT_FALSE(files().contains("b.jsonl"));
}

}  // namespace
}  // namespace ladder::test
