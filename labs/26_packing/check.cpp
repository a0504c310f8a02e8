// Plans, borders, and attention of documents, on lengths and numbers that are drawn.
#include "labs/check.h"

#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chapters/26_packing/bundles.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

std::string words_of(const Piece& piece) {
  return fmt::format("{}+{}{} ", piece.begin, piece.length, piece.later ? " later" : "");
}

void run_pieces(Sheet& sheet) {
  const auto T = sheet.pick<int64_t>("T", {5, 7, 8});
  PackCounts all;
  for (int64_t n = 0; n <= 3 * T + 1; ++n) {
    std::vector<Piece> pieces{{.begin = 3, .length = 2}};  // of the document before
    cut({10, 10 + n}, T, pieces);
    std::string said;
    for (const Piece& piece : pieces) {
      said += words_of(piece);
      all.add(piece);
    }
    sheet.text(fmt::format("pieces/T {}: {} tokens", T, n), said);
  }
  sheet.text("pieces/counted: all",
             fmt::format("{} {} {} {}", all.pieces, all.trained, all.cut, all.pairs));
}

std::vector<int64_t> drawn_lengths(const Sheet& sheet, uint64_t stream, int64_t count, int64_t T) {
  std::vector<int64_t> lengths;
  for (const float x : sheet.normals("lengths", count, stream))
    lengths.push_back(std::clamp<int64_t>(static_cast<int64_t>(4 + 3 * x), 1, T));
  return lengths;
}

void run_plan(Sheet& sheet) {
  for (const Pack pack : {Pack::Ffd, Pack::Greedy})
    for (uint64_t round = 1; round <= 7; ++round) {  // the last has no piece
      const int64_t T = 8 + static_cast<int64_t>(round % 3), M = round < 3 ? T : 3;
      std::string said;
      for (const auto& row :
           plan_rows(drawn_lengths(sheet, round, round < 7 ? 24 : 0, T), T, M, pack))
        said += fmt::format("[{}] ", fmt::join(row, " "));
      sheet.text(fmt::format("plan/{}, round {}: rows", to_string(pack), round), said);
    }
}

constexpr int64_t kRow = 16, kBundles = 4;

/// Borders of D turns in B rows: three documents a row, the longest in any of them, then an empty
/// turn, then padding. The last row has one document and three empty turns.
std::vector<int32_t> drawn_borders(const Sheet& sheet, int64_t B) {
  std::vector<int32_t> borders;
  for (int64_t b = 0; b < B; ++b) {
    const std::vector<int64_t> lengths = drawn_lengths(sheet, 50 + static_cast<uint64_t>(b), 3, 4);
    const size_t documents = b == B - 1 ? 1 : lengths.size();
    int64_t at = b * kRow + (b == 1 ? 2 : 0);
    for (size_t d = 0; d < documents; ++d) {
      borders.push_back(static_cast<int32_t>(at));
      borders.push_back(static_cast<int32_t>(at += lengths[d] + (b == 0 && d == 1 ? 4 : 0)));
    }
    borders.insert(borders.end(), 8 - 2 * documents, static_cast<int32_t>(at));
  }
  return borders;
}

void run_positions(Sheet& sheet) {
  Arena arena;
  const std::vector<int32_t> drawn = drawn_borders(sheet, kBundles);
  const Tensor borders = arena.alloc(Mem::Activation, "borders", Dtype::I32, {4 * kBundles, 2}),
               position = arena.alloc(Mem::Activation, "position", Dtype::I32, {kBundles, kRow});
  std::ranges::copy(drawn, borders.data<int32_t>());
  std::fill_n(position.data<int32_t>(), position.size(), 7);  // padding is not there by luck
  const int64_t longest = fill_positions(position, borders);
  for (int64_t b = 0; b < kBundles; ++b)
    sheet.text(
        fmt::format("positions/all: row {}", b),
        fmt::format("{}", fmt::join(std::span(position.data<int32_t>() + b * kRow, kRow), " ")));
  sheet.text("positions/longest: it", fmt::format("{}", longest));
  for (const auto& wrong : {std::array{4, 6, 0, 2},
                            {0, 2, 12, 20},
                            {0, 4, 3, 6},
                            {0, 2, 6, 4},
                            {0, 2, kBundles * kRow, kBundles * kRow + 2}}) {
    std::ranges::copy(wrong, borders.data<int32_t>());
    std::string said = "taken";
    try {
      fill_positions(position, borders.slice(0, 2));
    } catch (const CheckError&) {
      said = "refused";
    }
    sheet.text(fmt::format("positions/refused: {}", fmt::join(wrong, " ")), said);
  }
}

/// A file of documents, one on a line.
DocumentFile lines(int64_t tokens) {
  std::ofstream file("lines.txt", std::ios::binary);
  for (int64_t i = 0; i < tokens; ++i)
    file.put(i % 9 == 8 ? '\n' : static_cast<char>('a' + i % 23));
  file.close();
  return {{.path = "lines.txt", .format = {}, .seq_len = kRow, .vocab = 256}, '\n'};
}

void run_bundles(Sheet& sheet, bool unpacked, int64_t micro) {
  Arena arena;
  const PackOptions options{
      .documents = true, .end_of_text = '\n', .unpacked = unpacked, .row_documents = 3};
  const DocumentFile file = lines(200);
  BundleBatch batch(arena, options, kBundles, micro, kRow);
  batch.clear();
  int64_t at = 0;
  for (uint64_t b = 0; b < kBundles; ++b) {
    std::vector<Piece> pieces;
    // Borders count from a micro-batch; documents of unlike number make unlike empty turns.
    for (const int64_t length : drawn_lengths(sheet, 70 + b, 1 + static_cast<int64_t>(b % 3), 5)) {
      pieces.push_back({.begin = at, .length = length, .later = at % 2 == 0});
      at += length + 1;
    }
    batch.add(file, pieces);
  }
  const auto numbers = [](const Tensor& x) {
    return fmt::format("{}",
                       fmt::join(std::span(x.data<int32_t>(), static_cast<size_t>(x.size())), " "));
  };
  const std::string how =
      fmt::format("bundles/{}, {} at a time", unpacked ? "unpacked" : "packed", micro);
  for (int64_t k = 0; k < kBundles; k += micro) {
    const Bundles part = batch.slice(Ctx{}, k, micro);
    sheet.text(how + ": tokens of " + std::to_string(k), numbers(part.rows.tokens));
    sheet.text(how + ": targets of " + std::to_string(k), numbers(part.rows.targets));
    sheet.text(how + ": borders of " + std::to_string(k), numbers(part.documents.borders));
  }
  const PackCounts counts = batch.counts();
  sheet.text(how + ": counted",
             fmt::format("{} {} {} {}", counts.rows, counts.trained, counts.padded, counts.cut));
}

void run_mask(Sheet& sheet) {
  constexpr int64_t NH = 2, HS = 4, C = NH * HS;
  CountedKernels kernels;
  Ctx& ctx = kernels.ctx();
  Arena arena;
  const auto drawn = [&](const char* name, const Shape& shape) {
    return sheet.drawn(arena, name, shape);
  };
  const Tensor qkv = drawn("qkv", {kBundles, kRow, 3 * C}),
               dout = drawn("dout", {kBundles, kRow, C}), out = drawn("out", {kBundles, kRow, C}),
               dqkv = drawn("dqkv", {kBundles, kRow, 3 * C}),
               lse = drawn("lse", {kBundles, NH, kRow});
  const std::vector<int32_t> borders = drawn_borders(sheet, kBundles);
  ctx.documents.borders = arena.alloc(Mem::Activation, "borders", Dtype::I32, {4 * kBundles, 2});
  ctx.documents.position = arena.alloc(Mem::Activation, "position", Dtype::I32, {kBundles, kRow});
  std::ranges::copy(borders, ctx.documents.borders.data<int32_t>());
  int32_t* position = ctx.documents.position.data<int32_t>();
  std::fill_n(position, kBundles * kRow, kPadding);
  for (size_t d = 0; d < borders.size(); d += 2)
    for (int32_t row = borders[d]; row < borders[d + 1]; ++row) position[row] = row - borders[d];
  ctx.documents.longest = 8;

  int64_t pairs = 0;
  std::set<std::pair<int64_t, int64_t>> called;
  const auto is_counted = [&](const DocumentRows& one) {
    pairs += one.rows.size() * (one.rows.size() + 1) / 2;
    called.emplace(one.rows.begin, one.rows.end);
    return one.rows.size() > 0;
  };
  attend_documents(ctx, kBundles, kRow, {out, lse}, [&](const Ctx& alone, const DocumentRows& one) {
    if (!is_counted(one)) return;
    alone.kernels->attention_forward(alone, one.of(out), one.statistics(lse), one.of(qkv));
  });
  for (int64_t b = 0; b < kBundles; ++b)
    sheet.bits(fmt::format("mask/forward: out of row {}", b), out.slice(b, 1));
  attend_documents(ctx, kBundles, kRow, {dqkv}, [&](const Ctx& alone, const DocumentRows& one) {
    if (!is_counted(one)) return;
    alone.kernels->attention_backward(alone, one.of(dqkv), one.of(dout), one.of(qkv), one.of(out),
                                      one.statistics(lse));
  });
  for (int64_t b = 0; b < kBundles; ++b)
    sheet.bits(fmt::format("mask/backward: dqkv of row {}", b), dqkv.slice(b, 1));
  std::string all;
  for (const auto& [begin, end] : called) all += fmt::format(" {}-{}", begin, end);
  sheet.text("mask/calls: documents", all);
  // An output of 16 bits: what lies in other rows, and behind the last one, stays.
  const Tensor wide = arena.alloc(Mem::Workspace, "bf16", Dtype::BF16, {2 * kBundles, kRow, C});
  std::fill_n(wide.data<Bf16>(), wide.size(), Bf16{0x3F80});
  ctx.documents.chunk_length = 8;
  attend_documents(
      ctx, kBundles, kRow, {wide.slice(0, kBundles)}, [&](const Ctx& alone, const DocumentRows&) {
        sheet.text("mask/calls: chunk_length", fmt::format("{}", alone.documents.chunk_length));
      });
  sheet.bits("mask/16 bits: padding", wide);
  sheet.without_idea("pairs", 2 * kBundles * kRow * (kRow + 1) / 2);
  sheet.count("pairs", pairs);
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("by lengths of documents", [&] { run_pieces(sheet); });
  sheet.run("by plan", [&] { run_plan(sheet); });
  sheet.run("by positions", [&] { run_positions(sheet); });
  for (const bool unpacked : {false, true})
    for (const int64_t micro : {1, 2, 4})
      sheet.run(fmt::format("{} {}", unpacked ? "unpacked" : "packed", micro),
                [&] { run_bundles(sheet, unpacked, micro); });
  sheet.run("by mask", [&] { run_mask(sheet); });
}

}  // namespace ladder::lab
