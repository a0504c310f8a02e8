// Flags and values that a program refuses because only a branch of the chapters teaches them. The
// message names the branch, so that a reader of the trunk finds it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ladder {

/// A flag that a branch adds, or a value that a branch adds to a flag of the trunk.
struct BranchFlag {
  std::string_view flag;
  std::string_view value;  ///< empty: the flag itself
  std::string_view chapter;
};

std::span<const BranchFlag> branch_flags();

/// "--head-chunk belongs to 17_head_chunks: run ch17_head_chunks", or "--precision fp8 belongs to
/// ...". Empty if no branch adds it.
std::string branch_of(std::string_view flag, std::string_view value = "");

}  // namespace ladder
