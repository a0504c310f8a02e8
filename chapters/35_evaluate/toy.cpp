// A question with two answers, asked of a model that knows pairs of tokens. Its score does not
// depend on who shares a row with it. Four other ways to score give other numbers, and three of
// them the other answer.
//
//   g++ -std=c++20 chapters/35_evaluate/toy.cpp -o toy && ./toy
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using Tokens = std::vector<int>;

// The longest token that fits comes first, so a blank belongs to the word behind it.
const std::vector<std::string> kTokens = {
    "two and two make", " four", " twenty-two", "f", "our", "twenty", "-", "two", "four", " ", "."};

Tokens encode(std::string text) {
  Tokens tokens;
  while (!text.empty()) {
    int best = -1;
    for (int i = 0; i < static_cast<int>(kTokens.size()); ++i)
      if (text.starts_with(kTokens[i]) && (best < 0 || kTokens[i].size() > kTokens[best].size()))
        best = i;
    tokens.push_back(best);
    text.erase(0, kTokens[best].size());
  }
  return tokens;
}

// log p of `next` behind `token`: a softmax over numbers that mean nothing.
float log_p(int token, int next) {
  const auto logit = [&](int i) { return 2 * std::sin(static_cast<float>(2 * token + 3 * i)); };
  float all = 0;
  for (int i = 0; i < static_cast<int>(kTokens.size()); ++i) all += std::exp(logit(i));
  return logit(next) - std::log(all);
}

// What the model says of a row: for each position log p of the token behind it.
std::vector<float> forward(const Tokens& row) {
  std::vector<float> all;
  for (size_t i = 0; i + 1 < row.size(); ++i) all.push_back(log_p(row[i], row[i + 1]));
  return all;
}

double sum(const std::vector<float>& log_p, size_t begin, size_t end) {
  double all = 0;
  for (size_t i = begin; i < end; ++i) all += log_p[i];
  return all;
}

int main() {
  const std::string context = "two and two make", answers[] = {"four", "twenty-two"};
  Tokens row;  // both texts, one after the other, and padding
  double alone[2], apart[2], shifted[2], padded[2];
  size_t begin[2], end[2];
  for (int a = 0; a < 2; ++a) {
    const size_t before = encode(context).size();
    Tokens text = encode(context + " " + answers[a]);
    // Token i is read at position i, and predicted at position i - 1.
    alone[a] = sum(forward(text), before - 1, text.size() - 1);
    begin[a] = row.size() + before - 1;
    end[a] = row.size() + text.size() - 1;
    row.insert(row.end(), text.begin(), text.end());

    Tokens pieces = encode(context);
    for (const std::string& piece : {std::string(" "), answers[a]})
      for (const int token : encode(piece)) pieces.push_back(token);
    apart[a] = sum(forward(pieces), before - 1, pieces.size() - 1);
    text.push_back(10);  // padding: a dot
    shifted[a] = sum(forward(text), before, text.size() - 1);
    text.push_back(10);
    padded[a] = sum(forward(text), before - 1, text.size() - 1);
  }
  row.insert(row.end(), 3, 10);
  const std::vector<float> packed = forward(row);
  bool same = true, differ = true;
  for (int a = 0; a < 2; ++a) {
    same = same && sum(packed, begin[a], end[a]) == alone[a];
    differ = differ && apart[a] != alone[a] && shifted[a] != alone[a] && padded[a] != alone[a];
    std::printf("%-10s alone %.3f, encoded apart %.3f, one position late %.3f, with padding %.3f\n",
                answers[a].c_str(), alone[a], apart[a], shifted[a], padded[a]);
  }
  std::printf("in a shared row: %s\n", same ? "the same bits" : "OTHER BITS");
  // Each answer is one token, so a mean over tokens is the sum. A mean over characters is not.
  const bool by_sum = alone[1] > alone[0], by_characters = alone[1] / 10 > alone[0] / 4;
  std::printf("by the sum: %s; by characters: %s\n", answers[by_sum].c_str(),
              answers[by_characters].c_str());
  return same && differ && by_sum != by_characters ? 0 : 1;
}
