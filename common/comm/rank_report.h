// What watched ranks report of themselves, and when it is time to give up.
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

/// The report of one rank. Times are counted in looks.
struct RankReport {
  int32_t rank = 0;
  int32_t unheard = 0;           ///< since the last report of it
  int32_t silent = 0;            ///< since its last sign of life
  int32_t waited = 0;            ///< in the call that it has waited in longest
  bool over = false;             ///< it needs nothing more from the others
  bool debugged = false;         ///< a debugger holds it: its silence means nothing
  std::array<char, 128> call{};  ///< the call that it waits in, if any; cut if too long
  std::array<char, 64> host{};   ///< empty if all ranks are on one machine

  void set_call(std::string_view text);
};

/// Why to give up, if it is time to: a rank has waited too long, and another rank has given no sign
/// of life for as long, or all ranks wait. Names these ranks, and the calls in which they wait.
/// @param heard the ranks that have reported, of `ranks` ranks
std::optional<std::string> reason_to_give_up(std::span<const RankReport> heard, int ranks,
                                             const Patience& patience);

/// The timeout, as "60 s".
std::string seconds_text(const Patience& patience);

/// "0, 2, 3"; if there are many, only the first few.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace ladder
