#include "common/comm/rank_report.h"

#include <algorithm>

#include <fmt/format.h>

namespace ladder {
namespace {

constexpr size_t kShown = 8;  ///< how many ranks a message names

/// "1", "1 on HOST"
std::string name_of(const RankReport& report) {
  const char* const host = report.host.data();
  return fmt::format("{}{}{}", report.rank, *host ? " on " : "", host);
}

/// Joins parts with ", "; if there are many, only the first few.
std::string first_few(std::vector<std::string> parts) {
  if (parts.size() > kShown) {
    parts.resize(kShown);
    parts.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "rank 0 waits in all_reduce of 5 F32, rank 2 waits in barrier". Missing ranks are left out,
/// because their last report is old.
std::string waits_text(std::span<const RankReport> heard, std::span<const std::string> missing) {
  std::vector<std::string> parts;
  for (const RankReport& report : heard)
    if (report.waited > 0 && std::ranges::count(missing, name_of(report)) == 0)
      parts.push_back(fmt::format("rank {} waits in {}", name_of(report), report.call.data()));
  return first_few(std::move(parts));
}

}  // namespace

std::string seconds_text(const Patience& patience) {
  return fmt::format("{:.3g} s", static_cast<double>(patience.timeout().count()) / 1e3);
}

void RankReport::set_call(std::string_view text) {
  call = {};
  text.copy(call.data(), call.size() - 1);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(fmt::format("{}", rank));
  return first_few(std::move(names));
}

std::optional<std::string> reason_to_give_up(std::span<const RankReport> heard, int ranks,
                                             const Patience& patience) {
  const auto waits = [&](const RankReport& r) { return r.waited >= patience.looks; };
  if (patience.looks == 0 || std::ranges::none_of(heard, waits)) return std::nullopt;
  std::vector<std::string> missing;
  for (const RankReport& r : heard)
    if (!r.over && !r.debugged && r.unheard + r.silent >= patience.looks)
      missing.push_back(name_of(r));
  constexpr std::string_view kHint = "--timeout sets how long ranks wait";
  if (!missing.empty())
    return fmt::format("rank{} {} gave no sign of life for {}; {}; {}",
                       missing.size() == 1 ? "" : "s", first_few(missing), seconds_text(patience),
                       waits_text(heard, missing), kHint);
  const auto waits_or_is_gone = [&](const RankReport& r) { return r.over || waits(r); };
  if (std::ssize(heard) == ranks && std::ranges::all_of(heard, waits_or_is_gone))
    return fmt::format("the ranks wait for each other for {}: {}; {}", seconds_text(patience),
                       waits_text(heard, {}), kHint);
  return std::nullopt;
}

}  // namespace ladder
