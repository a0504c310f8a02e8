// The four changes that chapter 19 takes one by one, and all of them.
#pragma once

#include <ostream>
#include <string>

#include <gtest/gtest.h>

namespace ladder::test {

/// Flags of a change, for models of eight heads.
struct Change {
  std::string name, flags;
};

inline const Change kChanges[] = {
    {"Norm", "--norm rms "},
    {"Mlp", "--mlp swiglu "},
    {"Position", "--position rope "},
    {"Heads", "--kv-heads 4 "},
    {"All", "--norm rms --mlp swiglu --position rope --kv-heads 4 --no-bias "}};

inline void PrintTo(const Change& change, std::ostream* out) { *out << change.flags; }
inline std::string change_name(const ::testing::TestParamInfo<Change>& info) {
  return info.param.name;
}

}  // namespace ladder::test
