#include "tests/common/layout_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/check.h"
#include "tests/common/pairwise.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

constexpr const char* kMpirun = "mpirun";  // a word among flags

struct Axis {
  std::string name;
  bool given = false;
  Factor values{};
};

/// "--ranks 8" or "--micro-batch 4|8": flags of which a row has one.
using Item = std::vector<std::string>;

struct Block {
  std::string name, chapter, root, with{}, text = "1200", small{}, cuda{};
  std::vector<Axis> axes{};
  std::vector<std::vector<Item>> never{}, like{};
  std::vector<std::pair<std::string, std::vector<Item>>> unknown{};
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    const size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    parts.push_back(begin == part.npos ? "" : part.substr(begin, end - begin + 1));
  }
  if (text.ends_with(at)) parts.emplace_back();
  return parts;
}

/// "ranks: --ranks 1 | --ranks 2"
Axis parse_axis(const std::string& text, bool given) {
  const size_t colon = text.find(':');
  CHECK(colon != text.npos, "an axis without a colon: {}", text);
  Axis axis{text.substr(0, colon), given};
  for (const std::string& value : split(text.substr(colon + 1) + " ", '|'))
    axis.values.push_back(value);
  return axis;
}

/// "--ranks 8, --micro-batch 4|8"
std::vector<Item> parse_items(const std::string& text) {
  std::vector<Item> items;
  for (const std::string& part : split(text, ',')) {
    const size_t space = part.find(' ');
    Item item;
    if (space == part.npos)
      item.push_back(part);
    else
      for (const std::string& value : split(part.substr(space), '|'))
        item.push_back(part.substr(0, space) + " " + value);
    items.push_back(item);
  }
  return items;
}

bool has(const std::string& flags, const Item& item) {
  const std::string spaced = " " + flags + " ";
  return std::ranges::any_of(
      item, [&](const std::string& flag) { return spaced.find(" " + flag + " ") != spaced.npos; });
}

bool has_all(const std::string& flags, const std::vector<Item>& items) {
  return std::ranges::all_of(items, [&](const Item& item) { return has(flags, item); });
}

/// Whether flags have all items of one of the lines.
bool any(const std::vector<std::vector<Item>>& lines, const std::string& flags) {
  return std::ranges::any_of(lines, [&](const auto& items) { return has_all(flags, items); });
}

/// `axis`, in place of one with the same name.
void put(std::vector<Axis>& axes, const Axis& axis) {
  const auto same = std::ranges::find(axes, axis.name, &Axis::name);
  if (same == axes.end())
    axes.push_back(axis);
  else
    *same = axis;
}

/// "08_zero1 of 06_checkpointing", or "08_zero1 narrow of ..." for a second block of a chapter.
Block parse_block(const std::string& text) {
  const std::vector<std::string> all = words(text);
  const size_t of = all.size() - 2;
  CHECK((all.size() == 3 || all.size() == 4) && all[of] == "of", "no 'CHAPTER of ROOT': {}", text);
  return {.name = all[0] + (of == 2 ? "_" + all[1] : ""), .chapter = all[0], .root = all[of + 1]};
}

std::vector<Block> read_blocks(const std::filesystem::path& table) {
  std::vector<Axis> shared;
  std::vector<Block> blocks;
  for (const std::string& line : table_lines(table)) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string verb = line.substr(0, space);
    const std::string rest = space < line.size() ? line.substr(space + 1) : "";
    const bool is_axis = verb == "given" || verb == "layout";
    if (verb == "chapter") {
      blocks.push_back(parse_block(rest));
    } else if (is_axis && blocks.empty()) {
      put(shared, parse_axis(rest, verb == "given"));
    } else {
      CHECK(!blocks.empty(), "no chapter above: {}", line);
      Block& block = blocks.back();
      const std::map<std::string, std::string*> texts = {{"with", &block.with},
                                                         {"text", &block.text},
                                                         {"small", &block.small},
                                                         {"cuda", &block.cuda}};
      const std::map<std::string, std::vector<std::vector<Item>>*> conditions = {
          {"never", &block.never}, {"like", &block.like}};
      if (is_axis) {
        put(block.axes, parse_axis(rest, verb == "given"));
      } else if (verb == "axes") {
        for (const std::string& name : words(rest)) {
          const auto axis = std::ranges::find(shared, name, &Axis::name);
          CHECK(axis != shared.end(), "no axis {}", name);
          block.axes.push_back(*axis);
        }
      } else if (texts.contains(verb)) {
        *texts.at(verb) = rest;
      } else if (verb == "unknown") {
        const size_t colon = rest.find(": ");
        CHECK(colon != rest.npos, "unknown without a colon: {}", line);
        block.unknown.emplace_back(rest.substr(0, colon), parse_items(rest.substr(colon + 2)));
      } else {
        CHECK(conditions.contains(verb), "no such word: {}", line);
        conditions.at(verb)->push_back(parse_items(rest));
      }
    }
  }
  return blocks;
}

/// Flags that a draw takes instead of the block's own, and of the axes that have any of them.
void narrow(Block& block, const std::string& flags) {
  std::set<std::string> names;
  for (const std::string& word : words(flags))
    if (word.starts_with("--")) names.insert(word);
  std::erase_if(block.axes, [&](const Axis& axis) {
    return std::ranges::any_of(axis.values, [&](const std::string& value) {
      return std::ranges::any_of(words(value),
                                 [&](const std::string& word) { return names.contains(word); });
    });
  });
  block.with = flags;
}

class Rows {
 public:
  explicit Rows(const Block& block) : block_(block) {
    for (const Axis& axis : block.axes) factors_.push_back(axis.values);
  }

  std::vector<Layout> drawn(size_t strength) const {
    const std::vector<Row> rows =
        covering(factors_, strength, [&](const Row& row) { return is_legal(row); });
    std::vector<Layout> layouts;
    for (size_t i = 0; i < rows.size(); ++i)
      layouts.push_back(layout_of(rows[i], other_than(rows, i)));
    return layouts;
  }

 private:
  /// The flags of the given axes, or of the others.
  std::string flags(const Row& row, bool given) const {
    std::string all;
    for (size_t i = 0; i < row.size(); ++i)
      if (row[i] != kOpen && block_.axes[i].given == given) all += " " + factors_[i][row[i]];
    return all;
  }
  std::string flags(const Row& row) const {
    return block_.with + flags(row, true) + flags(row, false);
  }
  bool is_legal(const Row& row) const { return !any(block_.never, flags(row)); }

  /// What is given of row i, and the layout of the next that is legal with it.
  Row other_than(const std::vector<Row>& rows, size_t i) const {
    for (size_t step = 1; step < rows.size(); ++step) {
      Row other = rows[(i + step) % rows.size()];
      for (size_t axis = 0; axis < other.size(); ++axis)
        if (block_.axes[axis].given) other[axis] = rows[i][axis];
      if (is_legal(other) && flags(other, false) != flags(rows[i], false)) return other;
    }
    return rows[i];
  }

  static std::string without_mpirun(std::string flags) {
    const size_t at = flags.find(kMpirun);
    return at == std::string::npos ? flags : flags.erase(at, std::string(kMpirun).size());
  }
  Layout layout_of(const Row& row, const Row& other) const {
    const bool processes = has(flags(row, false), {kMpirun});
    std::vector<std::string> unknown;
    for (const auto& [part, items] : block_.unknown)
      if (has_all(flags(row), items) || has_all(flags(other), items)) unknown.push_back(part);
    return {.given = block_.with + flags(row, true),
            .own = without_mpirun(flags(row, false)),
            .other = without_mpirun(flags(other, false)),
            .unknown = unknown,
            .like_root = any(block_.like, flags(row)),
            .processes = processes};
  }

  const Block& block_;
  std::vector<Factor> factors_{};
};

bool has_ranks(const Block& block) {
  return std::ranges::any_of(block.axes, [](const Axis& axis) {
    return std::ranges::any_of(axis.values,
                               [](const std::string& flags) { return ranks_of(flags) > 1; });
  });
}

/// The first of those with most ranks, of at most four, in processes.
Layout of_processes(const std::vector<Layout>& rows) {
  Layout row = *std::ranges::max_element(rows, {}, [](const Layout& one) {
    const int ranks = ranks_of(one.given + " " + one.own);
    return ranks <= 4 ? ranks : 0;
  });
  row.processes = true;
  return row;
}

}  // namespace

int ranks_of(const std::string& flags) {
  int64_t product = 1;
  const std::vector<std::string> all = words(flags);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i] == "--ranks") return std::stoi(all[i + 1]);
    for (const char* degree : {"--tp", "--dp", "--pp", "--cp", "--ep", "--replicas"})
      if (all[i] == degree) product *= std::stoi(all[i + 1]);
  }
  return static_cast<int>(product);
}

std::vector<Layouts> read_layouts(const std::filesystem::path& table, Draw draw) {
  std::vector<Layouts> all;
  for (Block& block : read_blocks(table)) {
    const bool ranks = has_ranks(block), is_small = draw == Draw::Short || draw == Draw::Cuda;
    if (draw == Draw::Mpi && !ranks) continue;
    if (is_small) {
      const std::string flags = draw == Draw::Short ? block.small : block.cuda;
      if (flags.empty()) continue;
      narrow(block, flags);
    }
    if (draw == Draw::Triples && ranks)
      block.axes.push_back({.name = kMpirun, .values = {"", kMpirun}});
    const size_t strength = is_small ? 1 : draw == Draw::Triples ? 3 : 2;
    all.push_back({.name = block.name,
                   .chapter = block.chapter,
                   .root = draw == Draw::Short ? block.chapter : block.root,
                   // On the stand-in a thread runs at a time: little to validate on.
                   .text = draw == Draw::Cuda ? "400" : block.text,
                   .rows = [=] {
                     const std::vector<Layout> rows = Rows(block).drawn(strength);
                     CHECK(!rows.empty(), "{}: no row is legal", block.name);
                     return draw == Draw::Mpi ? std::vector{of_processes(rows)} : rows;
                   }});
  }
  return all;
}

}  // namespace ladder::test
