// Components: documents that are near duplicates, directly or through others. One of each stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace ladder {

/// Two documents that share a band.
struct NearPair {
  uint64_t a, b;
};

/// Union-find: each component is a tree, and parents lead to its root. find() halves the paths that
/// it walks, and join() hangs the smaller tree below the larger one. So n joins take O(n) in
/// practice.
class Components {
 public:
  explicit Components(size_t size) : parents_(size), sizes_(size, 1) {
    std::iota(parents_.begin(), parents_.end(), uint64_t{0});
  }
  /// The root of the document's tree: the same for all documents of a component.
  uint64_t find(uint64_t document) {
    for (uint64_t above = parent(document); above != document; above = parent(document)) {
      parents_[document] = parent(above);
      document = parents_[document];
    }
    return document;
  }
  void join(uint64_t a, uint64_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return;
    if (sizes_[a] < sizes_[b]) std::swap(a, b);
    parents_[b] = a;
    sizes_[a] += sizes_[b];
  }

  int64_t steps() const { return steps_; }  ///< parents that find() has looked at

 private:
  uint64_t parent(uint64_t document) {
    ++steps_;
    return parents_[document];
  }
  std::vector<uint64_t> parents_, sizes_;
  int64_t steps_ = 0;
};

/// The survivor of each document's component: the one of its documents that comes first. The order
/// must not depend on where documents stand in the input.
/// @param is_there whether a document can survive: no rule has removed it
/// @param comes_first the order: whether the first of two documents comes before the second
template <class IsThere, class ComesFirst>
std::vector<uint64_t> survivors(Components& components, size_t size, IsThere&& is_there,
                                ComesFirst&& comes_first) {
  constexpr uint64_t kNone = UINT64_MAX;
  std::vector<uint64_t> best(size, kNone);  // by the component's root
  for (uint64_t i = 0; i < size; ++i) {
    if (!is_there(i)) continue;
    uint64_t& first = best[components.find(i)];
    if (first == kNone || comes_first(i, first)) first = i;
  }
  std::vector<uint64_t> of(size);
  for (uint64_t i = 0; i < size; ++i) of[i] = best[components.find(i)];
  return of;
}

}  // namespace ladder
