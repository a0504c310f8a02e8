#include <algorithm>
#include <tuple>

#include "common/error.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;

}  // namespace

std::optional<uint32_t> TokenizerBuilder::id_of(const std::string& bytes) const {
  const auto at = ids_.find(bytes);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

void TokenizerBuilder::add_token(std::string bytes, int64_t id, std::string_view shown) {
  if (id < 0 || id >= kMostTokens)
    throw UserError("token {} has the id {}; legal are 0 to {}", shown, id, kMostTokens - 1);
  if (bytes.empty()) throw UserError("the token of id {} is empty", id);
  const auto at = static_cast<uint32_t>(id);
  if (made_.tokens.size() <= at) made_.tokens.resize(at + 1);
  if (!made_.tokens[at].empty())
    throw UserError("the id {} is that of two tokens, {} and {}", id, to_alphabet(made_.tokens[at]),
                    to_alphabet(bytes));
  if (const auto [other, is_new] = ids_.emplace(bytes, at); !is_new)
    throw UserError("token {} has two ids, {} and {}", to_alphabet(bytes), other->second, id);
  made_.tokens[at] = std::move(bytes);
}

void TokenizerBuilder::add_special(const std::string& text, int64_t id) {
  const auto known = id_of(text);
  if (!known || known != id) add_token(text, id, text);
  made_.special[text] = static_cast<uint32_t>(id);
  if (text == kEndOfText || (text == "<|end_of_text|>" && !made_.end_of_text))
    made_.end_of_text = static_cast<uint32_t>(id);
}

void TokenizerBuilder::add_merge(const std::string& left, const std::string& right) {
  const size_t number = made_.merges.size();
  const auto known = [&](const std::string& bytes) {
    if (const auto id = id_of(bytes)) return *id;
    throw UserError("merge {} is of {} and {}, and no token is {}", number, to_alphabet(left),
                    to_alphabet(right), to_alphabet(bytes));
  };
  const Merge merge{known(left), known(right), known(left + right), static_cast<uint32_t>(number)};
  if (const auto [first, is_new] = pairs_.emplace(std::pair(merge.left, merge.right), number);
      !is_new)
    throw UserError("merges {} and {} are of the same tokens, {} and {}", first->second, number,
                    to_alphabet(left), to_alphabet(right));
  made_.merges.push_back(merge);
}

void TokenizerBuilder::merge_by_rank() {
  check_ids();
  for (const auto& [bytes, id] : ids_)
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids_.find(std::string_view(bytes).substr(0, cut));
      const auto right = ids_.find(std::string_view(bytes).substr(cut));
      if (left != ids_.end() && right != ids_.end())
        made_.merges.push_back({left->second, right->second, id, id});
    }
  std::ranges::sort(made_.merges, {}, [](const Merge& m) { return std::tuple(m.rank, m.left); });
  made_.whole_words = true;
}

void TokenizerBuilder::check_ids() const {
  // There may be gaps between special tokens, as in cl100k.
  int64_t last = made_.vocab() - 1;
  while (last >= 0 && (made_.tokens[static_cast<size_t>(last)].empty() ||
                       made_.is_special(static_cast<uint32_t>(last))))
    --last;
  for (int64_t id = 0; id < last; ++id)
    if (made_.tokens[static_cast<size_t>(id)].empty())
      throw UserError("no token has the id {}, and others go up to {}", id, last);
}

Tokenizer TokenizerBuilder::finish() {
  check_ids();
  byte_ids(made_);
  return std::move(made_);
}

}  // namespace ladder
