#include "common/run/progress.h"

#include <algorithm>
#include <cmath>
#include <unistd.h>

#include <fmt/format.h>

#include "common/comm/run_ranks.h"
#include "common/run/report.h"
#include "kernels/context.h"

namespace ladder {
namespace {

constexpr int64_t kLinesOfRun = 20;
constexpr int64_t kRedrawNs = 100'000'000;
constexpr int64_t kBarWidth = 24;
constexpr const char* kClearLine = "\r\x1b[K";

std::string minutes(double seconds) {
  const auto s = std::isfinite(seconds) ? static_cast<int64_t>(std::lround(seconds)) : 0;
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Progress::Style Progress::style_for(std::FILE* out, bool quiet) {
  if (quiet) return Style::Quiet;
  // mpirun gives its ranks a terminal. That of Open MPI 5 passes on only whole lines.
  return ::isatty(::fileno(out)) && !under_mpirun() ? Style::Bar : Style::Lines;
}

void Progress::show(const State& s) {
  const auto text =
      fmt::format("step {:>{}}/{}  loss {}{}  {:.0f} tokens/s  {} left", s.done,
                  fmt::formatted_size("{}", steps_), steps_, loss_text(s.loss),
                  s.bits_per_byte > 0 ? fmt::format(", {:.3f} bits/byte", s.bits_per_byte) : "",
                  s.tokens_per_second, minutes(s.seconds_left));
  if (style_ == Style::Bar && (s.done == steps_ || now_ns() - drawn_ns_ > kRedrawNs)) {
    const int64_t full = kBarWidth * s.done / std::max<int64_t>(steps_, 1);
    draw(fmt::format("[{:<{}}] {}", std::string(static_cast<size_t>(full), '#'), kBarWidth, text));
  }
  if (style_ == Style::Lines && line_due(s.done)) {
    std::fputs((text + "\n").c_str(), out_);
    std::fflush(out_);
  }
}

bool Progress::line_due(int64_t done) const {
  const int64_t stride = std::max<int64_t>(1, steps_ / kLinesOfRun);
  return done == 1 || done == steps_ || done % stride == 0;
}

void Progress::draw(const std::string& text) {
  bar_ = text;
  drawn_ns_ = now_ns();
  std::fputs((kClearLine + bar_).c_str(), out_);
  std::fflush(out_);
}

void Progress::line(std::string_view text) {
  if (style_ == Style::Quiet) return;
  const char* const clear = bar_.empty() ? "" : kClearLine;
  std::fputs(fmt::format("{}{}\n{}", clear, text, bar_).c_str(), out_);
  std::fflush(out_);
}

void Progress::end() {
  if (!bar_.empty()) std::fputs("\n", out_);
  bar_.clear();
}

}  // namespace ladder
