// A pairwise choice: of all rows that take one value of each factor, few, in which each two values
// of two factors still meet. Most faults need no more than two values to show. (D. M. Cohen et al.,
// "The AETG System", IEEE Transactions on Software Engineering 23(7), 1997.)
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ladder::test {

/// The values of one factor: flags, such as "--tp 1" and "--tp 2".
using Factor = std::vector<std::string>;

/// A value of each factor, as its index.
using Row = std::vector<size_t>;

/// A choice of the legal rows in which each pair of values occurs that occurs in any of them. Each
/// row is the one with the most new pairs; of several the last, so the choice is always the same.
std::vector<Row> pairwise(const std::vector<Factor>& factors,
                          const std::function<bool(const Row&)>& is_legal);

/// "--tp 2 --sequence-parallel"
std::string flags_of(const std::vector<Factor>& factors, const Row& row);

}  // namespace ladder::test
