#include <algorithm>
#include <set>
#include <tuple>

#include "common/error.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;
// Ids without a token. cl100k has 16 of them, o200k has 18.
constexpr int64_t kMostGaps = 1 << 16;

}  // namespace

std::optional<uint32_t> TokenizerBuilder::id_of(const std::string& bytes) const {
  const auto at = ids_.find(bytes);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

void TokenizerBuilder::put(const std::string& bytes, int64_t id, std::string_view shown) {
  if (id < 0 || id >= kMostTokens)
    throw UserError("token {} has the id {}; legal are 0 to {}", shown, id, kMostTokens - 1);
  if (bytes.empty()) throw UserError("the token of id {} is empty", id);
  const auto [other, is_new] = tokens_.emplace(static_cast<uint32_t>(id), bytes);
  if (!is_new)
    throw UserError("the id {} is that of two tokens, {} and {}", id, to_alphabet(other->second),
                    to_alphabet(bytes));
}

void TokenizerBuilder::add_token(const std::string& bytes, int64_t id, std::string_view shown) {
  put(bytes, id, shown);
  if (const auto [other, is_new] = ids_.emplace(bytes, static_cast<uint32_t>(id)); !is_new)
    throw UserError("token {} has two ids, {} and {}", to_alphabet(bytes), other->second, id);
}

void TokenizerBuilder::add_added(const std::string& text, AddedToken token, int64_t id) {
  // Merges may make a token of the same bytes, as of a run of blanks.
  put(text, id, text);
  token.id = static_cast<uint32_t>(id);
  ids_.emplace(text, token.id);
  if (const auto [other, is_new] = made_.added.emplace(text, token); !is_new)
    throw UserError("token {} has two ids, {} and {}", text, other->second.id, id);
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
  // Both parts of a token have lengths that tokens have. So a very long token has few cuts.
  std::set<size_t> lengths;
  for (const auto& [bytes, id] : ids_) lengths.insert(bytes.size());
  for (const auto& [bytes, id] : ids_)
    for (const size_t cut : lengths) {
      if (cut >= bytes.size()) break;
      if (!lengths.contains(bytes.size() - cut)) continue;
      const auto left = ids_.find(std::string_view(bytes).substr(0, cut));
      const auto right = ids_.find(std::string_view(bytes).substr(cut));
      if (left != ids_.end() && right != ids_.end())
        made_.merges.push_back({left->second, right->second, id, id});
    }
  std::ranges::sort(made_.merges, {}, [](const Merge& m) { return std::tuple(m.rank, m.left); });
  made_.whole_words = true;
}

void TokenizerBuilder::check_ids() const {
  const auto is_added = [&](const auto& token) {
    const auto at = made_.added.find(token.second);
    return at != made_.added.end() && at->second.id == token.first;
  };
  // There may be gaps between added tokens, as in cl100k.
  const auto last = std::find_if_not(tokens_.rbegin(), tokens_.rend(), is_added);
  const int64_t end = last == tokens_.rend() ? 0 : int64_t{last->first} + 1;
  for (int64_t next = 0; const auto& [id, bytes] : tokens_) {
    if (next == end) break;
    if (id != next)
      throw UserError("no token has the id {}, and others go up to {}", next, end - 1);
    ++next;
  }
  const int64_t most = std::ssize(tokens_) + kMostGaps - 1;
  if (!tokens_.empty() && tokens_.rbegin()->first > most)
    throw UserError("token {} has the id {}; legal are 0 to {} for {} tokens",
                    to_alphabet(tokens_.rbegin()->second), tokens_.rbegin()->first, most,
                    tokens_.size());
}

Tokenizer TokenizerBuilder::finish() {
  check_ids();
  if (!tokens_.empty()) made_.tokens.resize(tokens_.rbegin()->first + 1);
  for (auto& [id, bytes] : tokens_) made_.tokens[id] = std::move(bytes);
  byte_ids(made_);
  return std::move(made_);
}

}  // namespace ladder
