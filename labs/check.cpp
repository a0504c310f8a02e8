#include "labs/check.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <unistd.h>

#include "kernels/arena.h"

namespace ladder::lab {
namespace {

std::string hex(std::span<const uint32_t> words) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(8 * words.size());
  for (const uint32_t word : words)
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  return text;
}

/// A row is one line of fields between tabs.
std::string in_one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line)
    if (c == '\n' || c == '\t') c = ' ';
  return line;
}

}  // namespace

std::vector<float> Sheet::normals(std::string_view name, int64_t n, uint64_t stream) const {
  const Random random(seed_ + 1000003 * stream, name);
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(random.normal_pair(i / 2)[i % 2]);
  return values;
}

void Sheet::draw(const Tensor& x, std::string_view name, uint64_t stream) const {
  std::ranges::copy(normals(name, x.size(), stream), x.data<float>());
}

Tensor Sheet::drawn(Arena& arena, std::string_view name, Shape shape, uint64_t stream) const {
  const Tensor x = arena.zeros(Mem::Workspace, std::string(name), Dtype::F32, shape);
  draw(x, name, stream);
  return x;
}

void Sheet::run(const std::string& name, const std::function<void()>& body) {
  case_ = in_one_line(name);
  wanted_ = false;
  row("", "begin", "");
  try {
    body();
  } catch (const std::exception& e) {
    row("", "threw", e.what());
  } catch (const char* what) {
    row("", "threw", what);
  } catch (...) {
    row("", "threw", "an exception that is no std::exception");
  }
}

void Sheet::bits(std::string_view gate, std::span<const float> values) {
  std::vector<uint32_t> words(values.size());
  for (size_t i = 0; i < words.size(); ++i) std::memcpy(&words[i], &values[i], sizeof words[i]);
  row(gate, "f32", hex(words));
}

void Sheet::bits(std::string_view gate, const Tensor& values) {
  const auto n = static_cast<size_t>(values.size());
  if (values.dtype == Dtype::F32) return bits(gate, std::span(values.data<float>(), n));
  CHECK(values.dtype == Dtype::BF16 || values.dtype == Dtype::F16, "bits of this dtype");
  std::vector<uint32_t> words(n);
  for (size_t i = 0; i < n; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, static_cast<const char*>(values.host()) + 2 * i, sizeof half);
    words[i] = half;
  }
  row(gate, values.dtype == Dtype::BF16 ? "bf16" : "f16", hex(words));
}

void Sheet::wanted(const std::function<void()>& rows) {
  wanted_ = true;
  rows();
  wanted_ = false;
}

std::string Sheet::returned(const std::string& what, const std::function<std::string()>& make) {
  if (role_ == Role::Judge) {
    const auto found = returned_.find({case_, what});
    if (found == returned_.end()) throw std::runtime_error(what + " is not there");
    return found->second;
  }
  // That there is such a row tells lab.py to ask a Judge; that of an extension may throw.
  if (role_ == Role::Reference) row(what, "returned", "");
  const std::string words = make();
  if (role_ == Role::Student) row(what, "returned", words);
  return words;
}

void Sheet::text(std::string_view gate, std::string_view value) { row(gate, "text", value); }

void Sheet::count(std::string_view gate, int64_t figure) {
  row(gate, "count", fmt::format("{}", figure));
}

void Sheet::without_idea(std::string_view gate, int64_t figure) {
  row(gate, "without", fmt::format("{}", figure));
}

/// At once and past all buffers: what has been measured counts, however the process ends.
void Sheet::row(std::string_view gate, std::string_view kind, std::string_view value) {
  const std::string line =
      fmt::format("{}\t{}{}\t{}\t{}\n", case_, wanted_ ? "=" : "", gate, kind, in_one_line(value));
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(rows_, line.data() + at, line.size() - at);
    CHECK(n > 0, "cannot write a row");
    at += static_cast<size_t>(n);
  }
}

}  // namespace ladder::lab

/// On its standard input: the descriptor for rows, the seed and the role; for a Judge then lines of
/// case, what and words, between tabs. lab.py starts it.
int main() {
  using namespace ladder::lab;
  int rows = 0;
  uint64_t seed = 0;
  std::string role;
  if (!(std::cin >> rows >> seed >> role)) {
    std::cerr << "error: labs/lab.py starts this program: labs/lab.py check NN\n";
    return 2;
  }
  Sheet::Returned returned;
  std::string name, what, words;
  std::getline(std::cin, name);
  while (std::getline(std::cin, name, '\t') && std::getline(std::cin, what, '\t') &&
         std::getline(std::cin, words))
    returned.try_emplace({name, what}, words);
  const Role as = role == "student" ? Role::Student
                  : role == "judge" ? Role::Judge
                                    : Role::Reference;
  Sheet sheet(rows, seed, as, std::move(returned));
  cases(sheet);
  sheet.end();
  return 0;
}
