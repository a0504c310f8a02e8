// Packing in one short file: two documents in one row of eight tokens. Borders
// (FlashAttention's cu_seqlens) keep them apart. Three errors change losses; the mean looks right.
//
//   g++ -std=c++20 -ffp-contract=off chapters/26_packing/toy.cpp -o toy && ./toy

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int V = 4;  // tokens of the vocabulary
using Document = std::vector<int>;
const std::array<Document, 2> documents{{{1, 3, 2, 0, 2}, {3, 2, 1, 3, 0}}};

/// A number for a token at a position, in place of an embedding.
float embed(int token, int position) {
  return std::sin(1.3F * static_cast<float>(token) + 0.4F * static_cast<float>(position));
}

struct Row {
  std::vector<int> tokens, targets;
  std::vector<int> cu_seqlens{0};  // document d: positions cu_seqlens[d] to cu_seqlens[d + 1] - 1
};

/// A document of n tokens takes n - 1 positions of a row: all tokens but the last are read, and all
/// but the first are targets.
Row pack(const std::vector<Document>& some) {
  Row row;
  for (const Document& d : some) {
    row.tokens.insert(row.tokens.end(), d.begin(), d.end() - 1);
    row.targets.insert(row.targets.end(), d.begin() + 1, d.end());
    row.cu_seqlens.push_back(static_cast<int>(row.tokens.size()));
  }
  return row;
}

enum class Error { None, Attends, Positions, Targets };

/// The loss at each position: attention over the document so far, and a softmax.
std::vector<float> losses(const Row& row, Error error = Error::None) {
  std::vector<float> all;
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
    const int begin = row.cu_seqlens[d], end = row.cu_seqlens[d + 1];
    for (int i = begin; i < end; ++i) {
      const int first = error == Error::Attends ? 0 : begin;   // the mask: query i sees first to i
      const int zero = error == Error::Positions ? 0 : begin;  // where positions begin
      const float query = embed(row.tokens[i], i - zero);
      float sum = 0, mean = 0;
      for (int j = first; j <= i; ++j) {
        const float key = embed(row.tokens[j], j - zero), weight = std::exp(query * key);
        sum += weight;
        mean += weight * key;
      }
      // The error: targets are the row moved by one, so the last one is of the next document.
      const bool crosses = error == Error::Targets && i + 1 == end && d + 2 < row.cu_seqlens.size();
      const int target = crosses ? row.tokens[end] : row.targets[i];
      float exps = 0;
      for (int v = 0; v < V; ++v) exps += std::exp(embed(v, 0) * (mean / sum));
      all.push_back(std::log(exps) - embed(target, 0) * (mean / sum));
    }
  }
  return all;
}

int main() {
  std::vector<float> alone;  // each document in a row of its own
  for (const Document& d : documents)
    for (const float loss : losses(pack({d}))) alone.push_back(loss);
  const Row row = pack({documents[0], documents[1]});
  std::printf("cu_seqlens: 0 %d %d; queries down, keys across:\n", row.cu_seqlens[1],
              row.cu_seqlens[2]);
  for (int i = 0; i < row.cu_seqlens[2]; ++i) {
    for (int j = 0; j < row.cu_seqlens[2]; ++j) {
      const bool one_document = (i < row.cu_seqlens[1]) == (j < row.cu_seqlens[1]);
      std::printf(" %c", one_document && j <= i ? 'x' : '.');
    }
    std::printf("\n");
  }

  bool good = losses(row) == alone;
  const auto print = [&](const char* name, const std::vector<float>& all) {
    float mean = 0;
    std::printf("%-26s", name);
    for (const float loss : all) {
      std::printf(" %.3f", loss);
      mean += loss / static_cast<float>(all.size());
    }
    std::printf("   mean %.3f\n", mean);
  };
  std::printf("\nlosses\n");
  print("each document alone", alone);
  print("packed", losses(row));
  for (const auto& [error, name] : {std::pair{Error::Attends, "no mask between documents"},
                                    std::pair{Error::Positions, "positions go on"},
                                    std::pair{Error::Targets, "a target from the next"}}) {
    print(name, losses(row, error));
    good = good && losses(row, error) != alone;
  }
  return good ? 0 : 1;
}
