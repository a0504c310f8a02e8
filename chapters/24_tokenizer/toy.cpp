// Byte pair encoding in one short file: merges are learned on one sentence, and then applied to a
// word. Encoding repeats the merges in the order in which they were learned. Taking the longest
// token gives other tokens.
//
//   g++ -std=c++20 chapters/24_tokenizer/toy.cpp -o toy && ./toy

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

using Tokens = std::vector<std::string>;  // a token is written as the bytes it stands for
using Pair = std::pair<std::string, std::string>;

Tokens bytes(const std::string& text) {
  Tokens tokens;
  for (const char c : text) tokens.emplace_back(1, c);
  return tokens;
}

/// From the left: wherever the two tokens of `pair` stand side by side, they become one token.
Tokens merged(const Tokens& tokens, const Pair& pair) {
  Tokens out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second) {
      out.push_back(tokens[i] + tokens[i + 1]);
      ++i;
    } else {
      out.push_back(tokens[i]);
    }
  }
  return out;
}

/// Learns merges, and applies each to `tokens`: the most frequent pair of neighbors. Of equally
/// frequent pairs the first one in the order of the alphabet is taken.
std::vector<Pair> train(Tokens& tokens, int count) {
  std::vector<Pair> merges;
  for (int n = 0; n < count; ++n) {
    std::map<Pair, int> counts;
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      // A blank only begins a token: no pair crosses from one word to the next.
      if (tokens[i + 1][0] != ' ') ++counts[{tokens[i], tokens[i + 1]}];
    Pair best;
    int most = 0;
    for (const auto& [pair, times] : counts) {
      if (times <= most) continue;
      best = pair;
      most = times;
    }
    tokens = merged(tokens, best);
    merges.push_back(best);
    std::printf("merge %d: '%s' + '%s', %d times; %zu tokens are left\n", n, best.first.c_str(),
                best.second.c_str(), most, tokens.size());
  }
  return merges;
}

/// The earliest merge first, as in training.
Tokens encode(const std::string& text, const std::vector<Pair>& merges) {
  Tokens tokens = bytes(text);
  for (const Pair& pair : merges) tokens = merged(tokens, pair);
  return tokens;
}

/// The mistake: at each place the longest token that fits.
Tokens longest(const std::string& text, const std::vector<Pair>& merges) {
  Tokens tokens;
  for (size_t i = 0; i < text.size();) {
    std::string best(1, text[i]);
    for (const Pair& pair : merges) {
      const std::string token = pair.first + pair.second;
      if (token.size() > best.size() && text.compare(i, token.size(), token) == 0) best = token;
    }
    tokens.push_back(best);
    i += best.size();
  }
  return tokens;
}

std::string shown(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += "[" + token + "]";
  return text;
}

int main() {
  const std::string sentence = "low lower lowest, new newer newest, the slow west";
  Tokens learned = bytes(sentence);
  const std::vector<Pair> merges = train(learned, 8);
  const std::string text = " slower";
  const Tokens right = encode(text, merges), wrong = longest(text, merges);
  std::string decoded;
  for (const std::string& token : right) decoded += token;
  std::printf("\nencoded:        %s\nlongest first:  %s\n", shown(right).c_str(),
              shown(wrong).c_str());
  std::printf("decoded again: '%s'\n", decoded.c_str());
  return decoded == text && right != wrong && encode(sentence, merges) == learned ? 0 : 1;
}
