// What ranks that are watched tell of themselves, and when it is time to give up.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/patience.h"

namespace ladder {

/// Of one rank. Times are counted in looks.
struct RankReport {
  int32_t rank = 0;
  int32_t unheard = 0;           ///< since it was last heard of
  int32_t silent = 0;            ///< since it last gave a sign of life
  int32_t waited = 0;            ///< in the call that it has waited in longest
  bool over = false;             ///< it needs nothing more of the others
  bool debugged = false;         ///< its silence means nothing
  std::array<char, 128> call{};  ///< that it waits in, if it does; cut where it is too long
  std::array<char, 64> host{};   ///< empty: all are on one machine

  void set_call(std::string_view text);
};

/// Why to give up, if it is time to: a rank has waited too long, and another has given no sign of
/// life for as long, or all wait. Names them, and in which calls they wait.
/// @param heard the ranks that there are reports of, of `ranks`
std::optional<std::string> reason_to_give_up(std::span<const RankReport> heard, int ranks,
                                             const Patience& patience);

/// "60 s": its timeout.
std::string seconds_text(const Patience& patience);

/// "0, 2, 3"; of many the first few.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace ladder
