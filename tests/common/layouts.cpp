// Layouts that change no bit, as tests/layouts.txt says, and what each promises:
//
// - Its trace is its root's, also where the run stops half-way and goes on in another layout.
// - Bytes of memory and on the wire are counted as they were predicted.
// - What it saves in the end are the files that its root saves.
// - Its validation tells what its root's tells, half-way and in the end.
//
// LADDER_DRAW is a Draw. LADDER_LAYOUTS=all in the environment draws as by night.
#include <cstdlib>
#include <ostream>

#include "tests/common/layout_table.h"
#include "tests/common/memory.h"
#include "tests/common/same_trace.h"

namespace ladder::test {

void PrintTo(const Layouts& layouts, std::ostream* out) { *out << layouts.chapter; }

namespace {

bool by_night() {
  const char* all = std::getenv("LADDER_LAYOUTS");
  return all != nullptr && std::string(all) == "all";
}

std::vector<Layouts> drawn() {
  const Draw draw = Draw::LADDER_DRAW;
  std::vector<Layouts> all =
      read_layouts(LADDER_TABLE, draw == Draw::Pairs && by_night() ? Draw::Triples : draw);
  // A build may have some chapters only.
  std::erase_if(all, [](const Layouts& layouts) {
    return !std::filesystem::exists(LADDER_PROGRAMS "/ch" + layouts.chapter) ||
           !std::filesystem::exists(LADDER_PROGRAMS "/ch" + layouts.root);
  });
  return all;
}

/// What a run leaves behind: also the bytes of its files.
struct Left {
  Trace trace;
  nlohmann::json report{};
  std::string weights{}, states{};
};

class LayoutRuns : public SameTrace, public ::testing::WithParamInterface<Layouts> {
 protected:
  const int64_t steps = by_night() ? 20 : Draw::LADDER_DRAW == Draw::Pairs ? 4 : 2;
  std::map<std::string, Left> roots;

  LayoutRuns() {
    const std::string text = read("text.txt");
    write("text.txt", (text + text).substr(0, std::stoul(GetParam().text)));
  }

  Left run(const Program& program, const std::string& flags, Range range) const {
    std::filesystem::remove_all(path("saved"));
    const std::string all = fmt::format("{} --eval-every {} --report report.json --save saved{}",
                                        flags, steps / 2, range.begin > 0 ? " --load half" : "");
    SCOPED_TRACE(program.chapter + " " + all);
    std::filesystem::remove(path("report.json"));
    Left left{.trace = trace(program, all, range)};
    left.report = nlohmann::json::parse(read("report.json"));
    left.weights = read("saved/model.safetensors");
    left.states = read("saved/current/optimizer.safetensors");
    return left;
  }
  const Left& root(const std::string& given) {
    if (!roots.contains(given)) roots[given] = run(GetParam().root, given, {0, steps});
    return roots.at(given);
  }
  Left layout(const Layout& row, const std::string& own, Range range) const {
    const Program program = row.processes
                                ? under_mpirun(GetParam().chapter, ranks_of(row.given + " " + own))
                                : Program(GetParam().chapter);
    return run(program, row.given + " " + own, range);
  }
  static void expect_counted(Left left, const Layout& row) {
    nlohmann::json& extra = left.report["extra"];
    for (const std::string& part : row.unknown)
      for (auto at = extra.begin(); at != extra.end();)
        at = at.key().starts_with(part) ? extra.erase(at) : std::next(at);
    EXPECT_TRUE(as_predicted(left.report));
  }
  void expect_promises(const Layout& row) {
    const Left& one = root(row.given);
    const Left half = layout(row, row.own, {0, steps / 2});
    expect_counted(half, row);
    if (row.like_root) {
      EXPECT_EQ(half.report["memory"], one.report["memory"]);
    }
    EXPECT_EQ(half.report["val_loss"], one.report.at("evals").at(0).at("val_loss"));
    std::filesystem::remove_all(path("half"));
    std::filesystem::rename(path("saved"), path("half"));
    SCOPED_TRACE("goes on with " + row.other);
    const Left rest = layout(row, row.other, {steps / 2, steps});
    expect_counted(rest, row);
    EXPECT_TRUE(same_trace(one.trace, joined(half.trace, rest.trace)));
    EXPECT_EQ(rest.report["val_loss"], one.report["val_loss"]);
    EXPECT_TRUE(rest.weights == one.weights) << "other files";
    EXPECT_TRUE(rest.states == one.states) << "other files";
  }
};

TEST_P(LayoutRuns, KeepEveryPromise) {
  const std::vector<Layout> rows = GetParam().rows();
  if (by_night()) fmt::print("layouts of {}: {}\n", GetParam().name, rows.size());
  for (const Layout& row : rows) {
    SCOPED_TRACE(GetParam().chapter + " " + row.given + row.own);
    expect_promises(row);
    if (HasFailure()) return;  // others would say the same, at length
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutRuns, ::testing::ValuesIn(drawn()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ladder::test
