// A checkpoint in one short file: two ranks copy, write, vote and rename while training goes on,
// and the machine stops after each operation in turn. What a loader finds is one whole state, old
// or new. Three wrong ways each lose it.
//
//   g++ -std=c++20 chapters/28_async_checkpoint/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

constexpr int kRanks = 2;
using State = std::array<int, kRanks>;  // one weight on each rank; after step s all of them are s
struct Crash {};

/// A disk. The machine may stop before each operation. Here each write is on the disk at once; with
/// a real one a program first syncs files and directory (fsync), and then renames the link.
struct Disk {
  int left;                       // operations until the machine stops
  std::string current = "step1";  // a link to a directory; one rename changes it
  std::map<std::string, int> files{{"step1/rank0", 1}, {"step1/rank1", 1}};

  void count() {
    if (left-- == 0) throw Crash();
  }
  void write(const std::string& name, int value) {
    count();
    files[name] = value;
  }
  void rename_link(const std::string& to) {
    count();
    current = to;
  }
};

std::string file(const std::string& directory, int rank) {
  return directory + "/rank" + std::to_string(rank);
}

enum class Error { None, NoCopy, InPlace, NoVote };
/// Saves the state after step 2, while steps 3 and 4 change the weights.
void save(Disk& disk, State& weights, Error error, int full_rank) {
  const State copy = weights;  // training waits for this, and for nothing else
  const std::string directory = error == Error::InPlace ? "step1" : "step2";
  std::array<bool, kRanks> written{};
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != full_rank) {  // else this rank's disk is full
      disk.write(file(directory, rank), error == Error::NoCopy ? weights[rank] : copy[rank]);
      written[rank] = true;
    }
    for (int& weight : weights) ++weight;  // a step of training, meanwhile
  }
  bool all = true;  // the vote: an all-reduce, because each rank knows only about its own file
  for (const bool one : written) all = all && one;
  if (all || error == Error::NoVote) disk.rename_link(directory);
}

/// Whether a loader finds the state after step 1 or the one after step 2, whole.
bool whole(const Disk& disk, bool talk) {
  std::vector<int> found;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = disk.files.find(file(disk.current, rank));
    if (at != disk.files.end()) found.push_back(at->second);
  }
  if (talk) {
    std::printf("  %s:", disk.current.c_str());
    for (const int value : found) std::printf(" %d", value);
    std::printf("%s\n", found.size() < kRanks ? " and a file is missing" : "");
  }
  return found.size() == kRanks && found[0] == found[1] && (found[0] == 1 || found[0] == 2);
}

/// How many stops leave no whole state. @param full_rank the rank whose disk is full, or -1
int losses(Error error, int full_rank, bool talk = false) {
  int lost = 0;
  bool ended = false;
  for (int crash = 0; !ended; ++crash) {
    Disk disk{crash};
    State weights{2, 2};
    try {
      save(disk, weights, error, full_rank);
      ended = true;
    } catch (const Crash&) {
    }
    if (talk) std::printf("stopped after %d operations:", crash);
    lost += !whole(disk, talk);
  }
  return lost;
}

int main() {
  const int right = losses(Error::None, -1, true) + losses(Error::None, 1);
  const int no_copy = losses(Error::NoCopy, -1), in_place = losses(Error::InPlace, -1);
  const int no_vote = losses(Error::NoVote, 1);
  std::printf("\nlost states as above, and with rank 1's disk full: %d\n", right);
  std::printf("without a copy, weights as they are by then:   %d\n", no_copy);
  std::printf("written over the old state:                    %d\n", in_place);
  std::printf("renamed without a vote, rank 1's disk full:    %d\n", no_vote);
  return right == 0 && no_copy > 0 && in_place > 0 && no_vote > 0 ? 0 : 1;
}
