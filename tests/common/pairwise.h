// A pairwise choice: of all rows that take one value of each factor, few, in which each two values
// of two factors still meet. Most faults need no more than two values to show, nearly all others
// three. (D. M. Cohen et al., "The AETG System", IEEE Transactions on Software Engineering 23(7),
// 1997; D. R. Kuhn et al., "Software Fault Interactions", 30(6), 2004.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ladder::test {

/// The values of one factor: flags, such as "--tp 1" and "--tp 2".
using Factor = std::vector<std::string>;

/// A value of each factor, as its index; kOpen where none is chosen yet.
using Row = std::vector<size_t>;
constexpr size_t kOpen = SIZE_MAX;

/// A choice of the legal rows in which each `strength` values of as many factors meet that meet in
/// any of them: 1 for each value, 2 for each pair, 3 for each triple. is_legal() also sees rows
/// with open factors, and says whether what is chosen may stand together. The choice is always the
/// same.
std::vector<Row> covering(const std::vector<Factor>& factors, size_t strength,
                          const std::function<bool(const Row&)>& is_legal);

}  // namespace ladder::test
