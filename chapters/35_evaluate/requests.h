// Requests: a task as tokens of which the last ones are scored.
//
// All that a score depends on beside the model is decided here. The rules are those of lm-eval:
//
//   - Blanks at the end of the context move over to what is scored.
//   - Context and choice are encoded together. What is scored is what follows the tokens of the
//     context alone. Encoded apart, "make", " " and "four" may be tokens that the model has never
//     seen in a row.
//   - An empty context is the prefix token. If the text begins with that token, this token is the
//     context.
//   - A text that is too long loses its first tokens: the last window + 1 are left. The last of
//     them is only a target.
//   - A text of its own is cut into windows. The first begins behind the prefix token. A later one
//     begins with the last token before it as its context. The last window is filled up with
//     context.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chapters/26_packing/plan.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/text_codec.h"
#include "common/tokens/unicode.h"

namespace ladder {

struct PrefixOptions {
  std::optional<int64_t> token;
  bool always = false;

  void add_to(CommandLine& line) {
    line.group("35_evaluate: the prefix");
    line.add("--prefix-token", token, "the context of a text that has none",
             {.shown_default = "the token that ends a text; without a tokenizer a newline"});
    line.add("--add-bos", always,
             "the prefix token before every text, for models that have seen it there");
  }
};

/// Position i reads token i and is scored on token i + 1, if that is one of the last `scored`.
struct Request {
  std::vector<int32_t> tokens;
  int64_t scored;

  int64_t positions() const { return std::ssize(tokens) - 1; }
};

/// How many bytes of a text stand before the blanks at its end. (Python's str.rstrip knows four
/// separators of ASCII that regular expressions do not call blanks.)
inline size_t without_blanks(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    at += c.bytes;
    if (c.kind != CharClass::Space && (c.code < 0x1c || c.code > 0x1f)) end = at;
  }
  return end;
}

class Requests {
 public:
  using Encode = std::function<std::vector<int32_t>(const std::string&)>;

  /// @param encode of a text that is not empty
  /// @param always whether each text is read behind the prefix
  /// @param window T
  Requests(Encode encode, int32_t prefix, bool always, int64_t window)
      : encode_(std::move(encode)), prefix_(prefix), always_(always), T_(window) {}
  /// @param codec must outlive it. @throws UserError
  Requests(const TextCodec& codec, const PrefixOptions& prefix, int64_t window)
      : Requests([&codec](const std::string& text) { return codec.encode(text); },
                 token_of(codec, prefix), prefix.always, window) {}

  /// A text as the model reads it; with --add-bos behind the prefix token.
  std::vector<int32_t> encode(const std::string& text) const {
    std::vector<int32_t> tokens = plain(text);
    if (always_ && (tokens.empty() || tokens.front() != prefix_))
      tokens.insert(tokens.begin(), prefix_);
    return tokens;
  }

  /// @throws UserError
  Request pair(const std::string& context, const std::string& choice) const {
    const size_t end = without_blanks(context);
    const std::string rest = context.substr(end) + choice;
    std::vector<int32_t> before = {prefix_}, all;
    if (end > 0) {
      before = encode(context.substr(0, end));
      all = encode(context.substr(0, end) + rest);
    } else {
      all = plain(rest);
      if (all.front() != prefix_) all.insert(all.begin(), prefix_);
    }
    const int64_t scored = std::ssize(all) - std::ssize(before);
    if (scored < 1 || scored > T_)
      throw UserError("'{}' behind its context has {} tokens; legal are 1 to {}, the window",
                      choice, scored, T_);
    before.insert(before.end(), all.end() - scored, all.end());
    return {last(before, T_ + 1), scored};
  }

  /// The windows of a text, each of whose tokens is scored once.
  std::vector<Request> windows(const std::string& text) const {
    std::vector<int32_t> tokens = encode(text);
    tokens.insert(tokens.begin(), prefix_);
    std::vector<Request> requests;
    for (auto end = tokens.begin() + 1; end != tokens.end();) {
      const int64_t scored = std::min(T_, tokens.end() - end);
      end += scored;
      const auto begin = end - std::min(T_ + 1, end - tokens.begin());
      requests.push_back({{begin, end}, scored});
    }
    return requests;
  }

  /// A context that leaves room for `room` tokens in the window.
  std::vector<int32_t> prompt(const std::string& context, int64_t room) const {
    std::vector<int32_t> tokens = encode(context);
    if (tokens.empty()) tokens = {prefix_};
    return last(tokens, T_ - room);
  }

 private:
  static int32_t token_of(const TextCodec& codec, const PrefixOptions& prefix) {
    const int64_t token = prefix.token.value_or(codec.encode("").front());
    require_range("--prefix-token", token, 0, codec.vocab() - 1);
    return static_cast<int32_t>(token);
  }
  /// Without a prefix. An empty text has no tokens.
  std::vector<int32_t> plain(const std::string& text) const {
    return text.empty() ? std::vector<int32_t>{} : encode_(text);
  }
  static std::vector<int32_t> last(const std::vector<int32_t>& tokens, int64_t most) {
    return {tokens.end() - std::min(most, std::ssize(tokens)), tokens.end()};
  }

  Encode encode_;
  int32_t prefix_;
  bool always_;
  int64_t T_;
};

/// The requests of all tasks one after the other, as a file that bundles are filled from (26).
struct RequestFile {
  std::vector<int32_t> all;
  std::vector<Piece> pieces;    ///< of each request
  std::vector<int64_t> scored;  ///< how many of its last positions
  std::vector<size_t> task;     ///< whose part it is
  std::vector<size_t> choice;

  void add(const Request& request, size_t of, size_t which) {
    pieces.push_back({.begin = std::ssize(all), .length = request.positions()});
    scored.push_back(request.scored);
    task.push_back(of);
    choice.push_back(which);
    all.insert(all.end(), request.tokens.begin(), request.tokens.end());
  }
  std::vector<Piece> pieces_of(const std::vector<int64_t>& requests) const {
    std::vector<Piece> some;
    for (const int64_t i : requests) some.push_back(pieces[static_cast<size_t>(i)]);
    return some;
  }
  /// Which positions of a row are scored, if these requests lie in it one after the other.
  std::vector<Range> scored_in(const std::vector<int64_t>& requests) const {
    std::vector<Range> ranges;
    int64_t end = 0;
    for (const int64_t i : requests) {
      end += pieces[static_cast<size_t>(i)].length;
      ranges.push_back({end - scored[static_cast<size_t>(i)], end});
    }
    return ranges;
  }
  /// As BundleBatch reads.
  void read(int64_t begin, std::span<int32_t> to) const {
    std::copy_n(all.begin() + begin, to.size(), to.begin());
  }
};

}  // namespace ladder
