// Permutations, deals, and the rows of small files, which are written here. Nothing is trained.
#include "labs/check.h"

#include <fstream>
#include <string>
#include <vector>

#include "chapters/27_data_order/data_order.h"

namespace ladder::lab {
namespace {

void run_order(Sheet& sheet, int64_t n) {
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const Permutation permutation(sheet.seed(), n % 3, epoch, n);
    std::string all;
    for (int64_t i = 0; i < n; ++i) all += fmt::format(" {}", permutation.at(i));
    sheet.text(fmt::format("order/{} documents: epoch {}", n, epoch), all);
  }
}

void run_shares(Sheet& sheet, const std::vector<int64_t>& weights) {
  std::vector<int64_t> counts(weights.size());
  std::string all;
  for (int t = 0; t < 60; ++t) {
    const size_t s = next_source(weights, counts);
    if (s >= weights.size()) throw UserError("there is no source {}", s);
    all += fmt::format(" {}", s);
    ++counts[s];
  }
  sheet.text(fmt::format("shares/weights {}: 60 documents", fmt::join(weights, " ")), all);
}

/// Lines of the letters a to z, 1 to 11 of them, and their ends.
void write_lines(const Sheet& sheet, const std::string& name, int64_t count) {
  const Random random(sheet.seed(), name);
  std::ofstream file(name, std::ios::binary);
  for (int64_t i = 0; i < count; ++i)
    file << std::string(1 + random.below(11, static_cast<uint64_t>(i)),
                        static_cast<char>('a' + i % 26))
         << '\n';
}

/// Two files, and the flags of a run on them.
struct Files {
  Files(const Sheet& sheet, int64_t epochs) {
    write_lines(sheet, "a.txt", sheet.pick("lines of a", {13, 17}));
    write_lines(sheet, "b.txt", sheet.pick("lines of b", {9, 11}));
    run.data = "none.txt";
    packing.documents = true;
    packing.end_of_text = '\n';
    packing.window = sheet.pick<int64_t>("window", {6, 7});
    packing.row_documents = 3;
    sources.given = {"a.txt:3", "b.txt:2"};
    sources.epochs = epochs;
    sources.find_files(run, packing);
    gpt.seq_len = 8;
  }
  OrderPlace place(uint64_t seed) const { return {sources, packing, gpt.seq_len, seed}; }

  RunOptions run;
  PackOptions packing;
  SourceOptions sources;
  GptConfig gpt = preset("nano");
};

/// The rows of a step, by the letters of their documents.
std::string rows_of(const OrderedStep& step) {
  std::string all;
  for (const std::vector<Piece>& row : step.bundles) {
    all += " |";
    for (const Piece& piece : row)
      all +=
          fmt::format(" {}{}", static_cast<char>(step.tokens.at(static_cast<size_t>(piece.begin))),
                      piece.length);
  }
  return step.whole ? all : all + " end";
}

constexpr int64_t kSteps = 12, kBundles = 4;

void run_rows(Sheet& sheet, int64_t epochs) {
  const Files files(sheet, epochs);
  DataOrder order(files.sources, files.packing, files.run, files.gpt);
  OrderPlace at = files.place(sheet.seed());
  const std::string name = epochs > 0 ? fmt::format("{} epochs", epochs) : "no end";
  for (int64_t step = 0; step < kSteps; ++step) {
    const OrderedStep read = order.read(at, kBundles, {0, kBundles});
    sheet.text(fmt::format("rows/{}: step {}", name, step), rows_of(read));
    if (!read.whole) return;
    at = read.after;
  }
}

/// A resume gets points only if all its rows are right. Epochs of a file end within them.
void run_resumes(Sheet& sheet) {
  const Files files(sheet, 0);
  OrderPlace at = files.place(sheet.seed());
  DataOrder order(files.sources, files.packing, files.run, files.gpt);
  for (int64_t stop = 1; stop < kSteps; ++stop) {
    at = order.read(at, kBundles, {0, kBundles}).after;
    OrderPlace loaded = files.place(sheet.seed() + 1);  // the state has the seed
    loaded.set_state(nlohmann::json::parse(at.state().dump()));
    DataOrder fresh(files.sources, files.packing, files.run, files.gpt);
    for (int64_t step = stop; step < stop + 3; ++step) {
      const OrderedStep read = fresh.read(loaded, kBundles, {step % 2 * 2, step % 2 * 2 + 2});
      sheet.text(fmt::format("resume/stopped after {}: step {}", stop, step), rows_of(read));
      loaded = read.after;
    }
    sheet.text(fmt::format("resume/stopped after {}: targets", stop),
               fmt::format("{}", fmt::join(loaded.targets, " ")));
  }
}

/// Whether a Place on these files accepts that state.
std::string answer(const Files& files, const nlohmann::json& state) {
  try {
    files.place(1).set_state(state);
    return "taken";
  } catch (const UserError&) {
    return "refused";
  }
}

void run_refusals(Sheet& sheet) {
  const Files files(sheet, 0);
  const nlohmann::json state = files.place(3).state();
  sheet.text("refused/the same", answer(files, state));
  Files other = files;
  other.sources.sources[0].weight = 2;
  sheet.text("refused/weight", answer(other, state));
  other = files;
  other.sources.sources[1].checksum += "x";
  sheet.text("refused/checksum", answer(other, state));
  other = files;
  other.sources.sources.pop_back();
  sheet.text("refused/number", answer(other, state));
  other = files;
  other.sources.sources[0].path = "moved.txt";
  sheet.text("refused/moved", answer(other, state));
  ++other.packing.window;
  sheet.text("refused/window", answer(other, state));
}

}  // namespace

void cases(Sheet& sheet) {
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{16}, int64_t{64},
                          sheet.pick<int64_t>("size", {21, 37, 50}), int64_t{300}})
    sheet.run(fmt::format("{} documents", n), [&] { run_order(sheet, n); });
  const auto w = sheet.pick<int64_t>("weight", {3, 5, 7});
  for (const std::vector<int64_t>& weights : std::vector<std::vector<int64_t>>{
           {1}, {1, 1}, {3, 1}, {w, 2, 1}, {1, 1, 1, 11, 11}, {2, 9, w, 4}, {1, 2, 3, 4}})
    sheet.run(fmt::format("weights {}", fmt::join(weights, " ")),
              [&] { run_shares(sheet, weights); });
  for (const int64_t epochs : {0, 1, 2})
    sheet.run(fmt::format("rows, {} epochs", epochs), [&] { run_rows(sheet, epochs); });
  sheet.run("resumes", [&] { run_resumes(sheet); });
  sheet.run("refusals", [&] { run_refusals(sheet); });
}

}  // namespace ladder::lab
