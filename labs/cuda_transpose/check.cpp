// What the kernel of lab cuda_transpose writes, and what it moves.
#include "labs/check.h"

#include "labs/cuda_transpose/transpose.h"
#include "labs/watched.h"

namespace ladder::lab {
namespace {

void check_transpose(Sheet& sheet, const std::string& name, int rows, int columns, int blocks,
                     bool counted) {
  const int64_t elements = int64_t{rows} * columns;
  sheet.run(fmt::format("{}: {} x {}, {} blocks", name, rows, columns, blocks), [&] {
    sheet.wanted([&] {
      want_right(sheet);
      if (!counted) return;
      sheet.count("bytes", 8 * elements);  // each is read once and written once
      sheet.count("conflicts", 0);
    });
    if (counted) {
      sheet.without_idea("bytes", 4 * elements + 32 * elements);  // a sector written for each
      sheet.without_idea("conflicts", 31 * elements / 32);        // 32 words of one bank
    }
    const std::vector<float> x = sheet.normals(name, elements);
    const OnDevice<float> inp(x);
    OnDevice<float> out(elements);
    const Start start{.grid = {.x = blocks}, .threads = kTransposeThreads, .outputs = {&out}};
    const on_cpu::Watched seen =
        watch(sheet, start, [&] { transpose(out.data, inp.data, rows, columns); });
    std::vector<double> exact;
    for (int c = 0; c < columns; ++c)
      for (int r = 0; r < rows; ++r) exact.push_back(x[static_cast<size_t>(r * columns + c)]);
    sheet.text("values", near(out, exact, std::vector<double>(exact.size())));
    if (!counted) return;
    sheet.count("bytes", seen.bytes_read + seen.bytes_written);
    sheet.count("conflicts", seen.bank_conflicts);
  });
}

}  // namespace

void cases(Sheet& sheet) {
  const auto tiles = [&](std::string_view what) { return 32 * sheet.pick(what, {1, 2, 3}); };
  check_transpose(sheet, "whole", tiles("rows"), tiles("columns"), 9, true);
  check_transpose(sheet, "few blocks", 64, 32 + tiles("few"), 2, true);
  check_transpose(sheet, "ragged", sheet.pick("r", {41, 53, 67}), sheet.pick("c", {33, 70, 91}), 2,
                  false);
  check_transpose(sheet, "small", sheet.pick("s", {1, 5, 9}), 40, 1, false);
}

}  // namespace ladder::lab
