// Progress: how far a run is. On a terminal it is a bar, elsewhere plain lines.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace ladder {

class Progress {
 public:
  enum class Style : uint8_t { Bar, Lines, Quiet };
  /// A bar if `out` is a terminal, unless quiet.
  static Style style_for(std::FILE* out, bool quiet);

  /// @param steps how many the run has in total
  Progress(std::FILE* out, Style style, int64_t steps) : out_(out), style_(style), steps_(steps) {}

  struct State {
    int64_t done;  ///< steps finished, including those before a resume
    double loss;
    double bits_per_byte = 0;  ///< 0: not known
    double tokens_per_second = 0;
    double seconds_left = 0;
  };
  /// Shows a finished step. Redraws the bar a few times per second, or prints about 20 lines per
  /// run.
  void show(const State& state);
  /// Prints a line of its own above the bar.
  void line(std::string_view text);
  /// Ends the bar's line.
  void end();

 private:
  bool line_due(int64_t done) const;
  void draw(const std::string& text);

  std::FILE* out_;
  Style style_;
  int64_t steps_;
  std::string bar_;  ///< what the line of the bar shows now
  int64_t drawn_ns_ = 0;
};

}  // namespace ladder
