// Flags and values that a program refuses because only a branch of the chapters teaches them. The
// message names the branch, so that a reader of the trunk finds it.
#pragma once

#include <string>
#include <vector>

namespace ladder {

/// What a branch adds: flags, and values of flags of the trunk ("--precision fp8").
struct Branch {
  std::string chapter;
  std::vector<std::string> adds;
};

const std::vector<Branch>& branches();

/// "--head-chunk belongs to 17_head_chunks: run ch17_head_chunks". Empty if no branch adds it.
/// @param words a flag, or a flag and its value
std::string branch_of(const std::string& words);

}  // namespace ladder
