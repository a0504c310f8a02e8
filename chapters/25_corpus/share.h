// How threads and ranks share lines, and how ranks exchange what they found.
#pragma once

#include <cstdint>
#include <future>
#include <type_traits>
#include <vector>

#include "common/comm/comm.h"
#include "common/data/line_files.h"

namespace ladder {

/// Which of the parts of a file a rank reads.
struct Share {
  int rank = 0, ranks = 1, threads = 1;
};

/// Every rank reads all parts, and works on its own: in each round of ranks x threads parts, those
/// are `threads` parts in a row. work(i, part) runs on thread i. done(parts) is called at the end
/// of a round, equally often on all ranks.
template <class Work, class Done>
void for_own_parts(LineFiles& lines, const Share& share, Work&& work, Done&& done) {
  std::vector<LinePart> own(static_cast<size_t>(share.threads));
  LinePart of_others;
  for (bool more = true; more;) {
    size_t parts = 0;
    for (int i = 0; more && i < share.ranks * share.threads; ++i) {
      const bool is_own = i / share.threads == share.rank;
      more = lines.next(is_own ? own[parts] : of_others);
      parts += is_own && more;
    }
    std::vector<std::future<void>> others;
    for (size_t i = 1; i < parts; ++i)
      others.push_back(std::async(std::launch::async, [&, i] { work(i, own[i]); }));
    if (parts > 0) work(size_t{0}, own[0]);
    for (std::future<void>& other : others) other.get();
    done(std::span(own).first(parts));
  }
}

/// Sends to[r] to rank r. @return what all ranks have sent here, in the order of ranks
template <class T>
std::vector<T> exchange(Comm& comm, std::vector<std::vector<T>>& to) {
  static_assert(std::is_trivially_copyable_v<T>);
  const int ranks = comm.size();
  const auto at = [](int rank) { return static_cast<size_t>(rank); };
  std::vector<int64_t> sent(at(ranks)), received(at(ranks));
  for (int r = 0; r < ranks; ++r) sent[at(r)] = std::ssize(to[at(r)]);
  const auto counts = [&](std::vector<int64_t>& of) {
    return Tensor{.ptr = of.data(), .dtype = Dtype::I64, .shape = {ranks}};
  };
  comm.all_to_all(counts(received), counts(sent));
  const auto tensor = [](std::vector<T>& of) {
    const int64_t bytes = std::ssize(of) * static_cast<int64_t>(sizeof(T));
    return Tensor{.ptr = of.data(), .dtype = Dtype::U8, .shape = {bytes}};
  };
  std::vector<std::vector<T>> from(at(ranks));
  from[at(comm.rank())] = std::move(to[at(comm.rank())]);
  for (int step = 1; step < ranks; ++step) {
    const int next = (comm.rank() + step) % ranks, before = (comm.rank() + ranks - step) % ranks;
    from[at(before)].resize(at(static_cast<int>(received[at(before)])));
    comm.exchange(tensor(to[at(next)]), next, tensor(from[at(before)]), before);
  }
  std::vector<T> all = std::move(from[0]);
  for (int r = 1; r < ranks; ++r) all.insert(all.end(), from[at(r)].begin(), from[at(r)].end());
  for (std::vector<T>& some : to) some.clear();
  return all;
}

/// An exchange() in which everything goes to rank 0.
template <class T>
std::vector<T> gather(Comm& comm, std::vector<T> own) {
  std::vector<std::vector<T>> to(static_cast<size_t>(comm.size()));
  to[0] = std::move(own);
  return exchange(comm, to);
}

}  // namespace ladder
