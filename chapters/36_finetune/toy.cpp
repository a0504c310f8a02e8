// What fine-tuning changes, in one short file: which targets count, and an adapter beside a frozen
// matrix. Errors that people made are seen to give other numbers.
//
//   g++ -std=c++20 -ffp-contract=off chapters/36_finetune/toy.cpp -o toy && ./toy

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

/// A chat between a user (u:) and an assistant (a:). Position i reads token i and learns token
/// i + 1. Targets that are learned stand in upper case; '.' is the token that ends an answer. The
/// last chat has three answers in a row.
const std::vector<std::string> chats{"u:hi,a:HO.", "u:one?a:YES.u:b,a:NO.",
                                     "u:go on,a:A.LONG.END."};

/// Stands for the loss of a model.
float loss_of(char target) { return std::sin(static_cast<float>(target)) + 1.5F; }

struct Sum {
  float loss = 0;
  int targets = 0;
  float mean() const { return loss / static_cast<float>(targets); }
};

/// Sums the losses of a chat's learned targets.
/// @param shift 1: the mask is moved by a position; @param end whether the end token is learned
Sum answers(const std::string& chat, size_t shift = 0, bool end = true) {
  Sum sum;
  for (size_t i = 0; i + 1 < chat.size(); ++i) {
    const char target = chat[i + 1], mask = chat[i + 1 - shift];
    if (!((mask >= 'A' && mask <= 'Z') || (end && mask == '.'))) continue;
    sum.loss += loss_of(target);
    ++sum.targets;
  }
  return sum;
}

/// The mean over all targets of the batch, whichever rank has which chat.
float mean(size_t shift = 0, bool end = true) {
  Sum all;
  for (const std::string& chat : chats) {
    all.loss += answers(chat, shift, end).loss;
    all.targets += answers(chat, shift, end).targets;
  }
  return all.mean();
}

using Matrix = std::vector<std::vector<float>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<float>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b[0].size(); ++j)
      for (size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

/// a + s b
Matrix plus(Matrix a, float s, const Matrix& b) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[i].size(); ++j) a[i][j] += s * b[i][j];
  return a;
}

Matrix numbers(size_t rows, size_t columns, float seed) {
  Matrix m(rows, std::vector<float>(columns));
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      m[i][j] = std::sin(seed + 3 * static_cast<float>(i * columns + j));
  return m;
}

float distance(const Matrix& a, const Matrix& b) {
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::fmax(most, std::fabs(a[i][0] - b[i][0]));
  return most;
}

int main() {
  float of_means = 0;
  for (const std::string& chat : chats) of_means += answers(chat).mean() / 3;
  std::printf("mean over all targets    %.4f\n", mean());
  std::printf("the end is masked        %.4f\n", mean(0, false));
  std::printf("the mask is shifted      %.4f\n", mean(1));
  std::printf("a mean of chats' means   %.4f\n", of_means);
  bool good = mean(0, false) != mean() && mean(1) != mean() && of_means != mean();

  const size_t N = 4, K = 6, r = 1;
  const float s = 16.0F / r;
  const Matrix W = numbers(N, K, 1), x = numbers(K, 1, 2), A = numbers(r, K, 3);
  const auto with = [&](const Matrix& B) {
    return plus(product(W, x), s, product(B, product(A, x)));
  };
  good = good && with(Matrix(N, std::vector<float>(r))) == product(W, x);  // B = 0: the same bits
  const Matrix B = numbers(N, r, 4), merged = plus(W, s, product(B, A));
  std::printf("merged, largest difference             %g\n", distance(product(merged, x), with(B)));
  std::printf("merged without alpha / r               %g\n",
              distance(product(plus(W, 1, product(B, A)), x), with(B)));
  good = good && distance(product(merged, x), with(B)) < 1e-4F;
  good = good && distance(product(plus(W, 1, product(B, A)), x), with(B)) > 0.1F;
  std::printf("numbers that learn: %zu of %zu\n", r * (N + K), N * K);
  return good ? 0 : 1;
}
