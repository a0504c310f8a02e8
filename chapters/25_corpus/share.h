// How threads and ranks split lines, and how ranks exchange what they found.
#pragma once

#include <cstdint>
#include <future>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/comm/comm.h"
#include "common/data/line_files.h"

namespace ladder {

/// Which of the parts of a file a rank works on.
struct Share {
  int rank = 0, ranks = 1, threads = 1;
};

/// Every rank reads all parts, but works only on its own. A round is ranks x threads parts, and
/// each rank has `threads` neighboring ones of them. work(i, part) runs on thread i. done() is
/// called at the end of a round, equally often on all ranks.
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
    done();
  }
}

/// Sends to[r] to rank r. @return what all ranks have sent here
template <class T>
std::vector<T> exchange(Comm& comm, std::vector<std::vector<T>>& to) {
  static_assert(std::is_trivially_copyable_v<T>);
  const int ranks = comm.size(), own = comm.rank();
  const auto at = [](int rank) { return static_cast<size_t>(rank); };
  std::vector<int64_t> sent, received(at(ranks));
  for (const std::vector<T>& some : to) sent.push_back(std::ssize(some));
  const auto tensor = [](auto some, Dtype dtype) {
    const int64_t size = std::ssize(some) * static_cast<int64_t>(sizeof(some[0]));
    return Tensor{.ptr = some.data(), .dtype = dtype, .shape = {size / size_of(dtype)}};
  };
  comm.all_to_all(tensor(std::span(received), Dtype::I64), tensor(std::span(sent), Dtype::I64));
  std::vector<T> all = std::exchange(to[at(own)], {});
  for (int step = 1; step < ranks; ++step) {
    const int next = (own + step) % ranks, before = (own + ranks - step) % ranks;
    const size_t end = all.size();
    all.resize(end + static_cast<size_t>(received[at(before)]));
    comm.exchange(tensor(std::span(to[at(next)]), Dtype::U8), next,
                  tensor(std::span(all).subspan(end), Dtype::U8), before);
    to[at(next)].clear();
  }
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
