// tests/layouts.txt: what each chapter may be run with that changes no bit, and the layouts that
// are drawn from it. The table says how its lines are read.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ladder::test {

/// Which layouts are drawn.
enum class Draw {
  Pairs,    ///< by day: each two values of two axes meet
  Triples,  ///< by night: each three, with processes as ranks, too
  Mpi,      ///< for processes as ranks: one of each chapter
  Short,    ///< for sanitizers: each value once, on a small model
  Cuda,     ///< for the CUDA kernels: each value once, on a smaller one
};

/// A run whose bits its root decides.
struct Layout {
  std::string given;                   ///< flags that the root has, too
  std::string own;                     ///< those that it has not
  std::string other;                   ///< another layout of the same root, for a run that goes on
  std::vector<std::string> unknown{};  ///< parts of the report that nobody predicts
  bool like_root = false;              ///< its memory is the root's, too
  bool processes = false;              ///< mpirun starts its ranks
};

struct Layouts {
  std::string name, chapter, root;            ///< chapters, but for the first
  std::string text;                           ///< how many bytes the text has
  std::function<std::vector<Layout>()> rows;  ///< draws them
};

/// The blocks of the table that such a draw is for.
std::vector<Layouts> read_layouts(const std::filesystem::path& table, Draw draw);

/// As many ranks as these flags ask for.
int ranks_of(const std::string& flags);

}  // namespace ladder::test
