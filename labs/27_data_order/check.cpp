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

std::string dealt(const std::vector<int64_t>& weights) {
  std::vector<int64_t> counts(weights.size());
  std::string all;
  for (int t = 0; t < 60; ++t) {
    const size_t s = next_source(weights, counts);
    if (s >= weights.size()) throw UserError("there is no source {}", s);
    all += fmt::format(" {}", s);
    ++counts[s];
  }
  return all;
}

void run_shares(Sheet& sheet, const std::vector<int64_t>& weights) {
  sheet.text(fmt::format("shares/weights {}: 60 documents", fmt::join(weights, " ")),
             dealt(weights));
}

void run_drawn_shares(Sheet& sheet) {
  const Random random(sheet.seed(), "weights");
  for (uint64_t list = 0; list < 20; ++list) {
    std::vector<int64_t> weights;
    for (uint64_t s = 0; s < 2 + list % 4; ++s)
      weights.push_back(static_cast<int64_t>(1 + random.below(9, 8 * list + s)));
    sheet.text(fmt::format("shares/drawn: weights {}", fmt::join(weights, " ")), dealt(weights));
  }
}

/// Lines of the letters a to z, up to 11 of them, and their ends. Every third line is empty: a
/// document without a target.
void write_lines(const Sheet& sheet, const std::string& name, int64_t count) {
  const Random random(sheet.seed(), name);
  std::ofstream file(name, std::ios::binary);
  for (int64_t i = 0; i < count; ++i)
    file << std::string(i % 3 == 2 ? 0 : 1 + random.below(11, static_cast<uint64_t>(i)),
                        static_cast<char>('a' + i % 26))
         << '\n';
}

/// Two files, and the flags of a run on them.
struct Files {
  Files(const Sheet& sheet, int64_t epochs, int64_t window = 0) {
    write_lines(sheet, "a.txt", sheet.pick("lines of a", {13, 17}));
    write_lines(sheet, "b.txt", sheet.pick("lines of b", {9, 11}));
    run.data = "none.txt";
    packing.documents = true;
    packing.end_of_text = '\n';
    packing.window = window > 0 ? window : sheet.pick<int64_t>("window", {6, 7});
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

void run_rows(Sheet& sheet, int64_t epochs, int64_t window = 0) {
  const Files files(sheet, epochs, window);
  DataOrder order(files.sources, files.packing, files.run, files.gpt);
  OrderPlace at = files.place(sheet.seed());
  const std::string name = window > 0   ? "windows of one document"
                           : epochs > 0 ? fmt::format("{} epochs", epochs)
                                        : "no end";
  for (int64_t step = 0; step < kSteps; ++step) {
    const OrderedStep read = order.read(at, kBundles, numbers_in({0, kBundles}));
    sheet.text(fmt::format("rows/{}: step {}", name, step), rows_of(read));
    if (!read.whole) return;
    at = read.after;
  }
}

/// Epochs of a file end within these steps.
void run_resumes(Sheet& sheet) {
  const Files files(sheet, 0);
  OrderPlace at = files.place(sheet.seed());
  DataOrder order(files.sources, files.packing, files.run, files.gpt);
  for (int64_t stop = 1; stop < kSteps; ++stop) {
    at = order.read(at, kBundles, numbers_in({0, kBundles})).after;
    OrderPlace loaded = files.place(sheet.seed() + 1);  // the state has the seed
    loaded.set_state(nlohmann::json::parse(at.state().dump()));
    DataOrder fresh(files.sources, files.packing, files.run, files.gpt);
    for (int64_t step = stop; step < stop + 3; ++step) {
      const OrderedStep read =
          fresh.read(loaded, kBundles, numbers_in({step % 2 * 2, step % 2 * 2 + 2}));
      sheet.text(fmt::format("resume/the same flags: stopped after {}, step {}", stop, step),
                 rows_of(read));
      loaded = read.after;
    }
    sheet.text(fmt::format("resume/the same flags: stopped after {}, targets", stop),
               fmt::format("{}", fmt::join(loaded.targets, " ")));
  }
}

/// Stops after each row of a run, and goes on with other flags. A window that was dealt stays as it
/// was: cut by the end of an epoch or not, and by the weights that held.
void run_other_flags(Sheet& sheet, const char* name, const Files& files, const Files& then) {
  OrderPlace at = files.place(sheet.seed());
  DataOrder order(files.sources, files.packing, files.run, files.gpt);
  for (int64_t stop = 1; stop < 24; ++stop) {
    const OrderedStep last = order.read(at, 1, numbers_in({0, 1}));
    if (!last.whole) return;
    at = last.after;
    OrderPlace loaded = then.place(sheet.seed());
    loaded.set_state(nlohmann::json::parse(at.state().dump()));
    DataOrder fresh(then.sources, then.packing, then.run, then.gpt);
    sheet.text(fmt::format("resume/{}: windows of {}, stopped after row {}", name,
                           files.packing.window, stop),
               rows_of(fresh.read(loaded, 4 * kBundles, numbers_in({0, 4 * kBundles}))));
  }
}

void run_no_sources(Sheet& sheet) {
  const SourceOptions none;
  const Files files(sheet, 0);
  OrderPlace place(none, files.packing, files.gpt.seq_len, 1);
  place.window = 5;
  place.row = 2;
  sheet.text("resume/no sources: state", place.state().dump());
  OrderPlace loaded(none, files.packing, files.gpt.seq_len, 1);
  loaded.set_state(place.RowCursor::state());
  sheet.text("resume/no sources: place", fmt::format("{} {}", loaded.window, loaded.row));
}

/// Whether a place on these files takes that state, and whether it stays as it was if not.
std::string answer(const Files& files, const nlohmann::json& state) {
  OrderPlace place = files.place(1);
  const auto all = [&] {
    return fmt::format("{} {} {} {} {} {} {} {}", place.window, place.row, place.seed,
                       fmt::join(place.counts_at_begin, " "), fmt::join(place.counts_at_end, " "),
                       fmt::join(place.targets, " "), fmt::join(place.weights, " "),
                       fmt::join(place.since, " "));
  };
  const std::string before = all();
  try {
    place.set_state(state);
    return "taken";
  } catch (const UserError&) {
    return all() == before ? "refused" : "refused, and half of it taken";
  }
}

void run_refusals(Sheet& sheet) {
  const Files files(sheet, 0);
  DataOrder order(files.sources, files.packing, files.run, files.gpt);
  const OrderPlace place =
      order.read(files.place(3), 3 * kBundles, numbers_in({0, kBundles})).after;
  const nlohmann::json state = place.state();
  sheet.text("refused/all: the same", answer(files, state));
  Files other = files;
  other.sources.sources[1].weight = 3;
  sheet.text("refused/all: weight", answer(other, state));
  other = files;
  other.sources.sources[1].checksum += "x";
  sheet.text("refused/all: checksum", answer(other, state));
  other = files;
  other.sources.sources.pop_back();
  sheet.text("refused/all: number", answer(other, state));
  other = files;
  other.sources.sources[0].path = "moved.txt";
  sheet.text("refused/all: moved", answer(other, state));
  ++other.packing.window;
  sheet.text("refused/all: window", answer(other, state));
}

}  // namespace

void cases(Sheet& sheet) {
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{16}, int64_t{64},
                          sheet.pick<int64_t>("size", {21, 37, 50}), int64_t{300}})
    sheet.run(fmt::format("{} documents", n), [&] { run_order(sheet, n); });
  const auto w = sheet.pick<int64_t>("weight", {3, 5, 7});
  for (const std::vector<int64_t>& weights : std::vector<std::vector<int64_t>>{
           {1}, {1, 1}, {3, 1}, {w, 2, 1}, {1, 1, 1, 11, 11}, {2, 9, w, 4}, {7, 5, 3}})
    sheet.run(fmt::format("weights {}", fmt::join(weights, " ")),
              [&] { run_shares(sheet, weights); });
  for (const int64_t epochs : {0, 1, 2})
    sheet.run(fmt::format("rows, {} epochs", epochs), [&] { run_rows(sheet, epochs); });
  sheet.run("drawn weights", [&] { run_drawn_shares(sheet); });
  sheet.run("rows, windows of one document", [&] { run_rows(sheet, 0, 1); });
  sheet.run("resumes", [&] { run_resumes(sheet); });
  const auto others = [&](const char* name, int64_t epochs, int64_t later) {
    sheet.run(name, [&] {  // an epoch ends within a window of one of these sizes
      for (const int64_t window : {8, 9})
        run_other_flags(sheet, name, {sheet, epochs, window}, {sheet, later, window});
    });
  };
  others("more epochs", 1, 2);
  others("an end that was none", 0, 1);
  sheet.run("new weights", [&] {
    const Files files(sheet, 0, 8);
    Files then = files;
    then.sources.new_weights = true;
    then.sources.sources[0].weight = 1;
    then.sources.sources[1].weight = 4;
    run_other_flags(sheet, "new weights", files, then);
  });
  sheet.run("no sources", [&] { run_no_sources(sheet); });
  sheet.run("refusals", [&] { run_refusals(sheet); });
}

}  // namespace ladder::lab
