// Progress: how far a run is, as a bar on a terminal and as plain lines elsewhere.
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

  /// @param steps total of the run
  Progress(std::FILE* out, Style style, int64_t steps) : out_(out), style_(style), steps_(steps) {}

  struct State {
    int64_t done;  ///< steps finished, those before a resume counted
    double loss;
    double tokens_per_second;
    double seconds_left;
  };
  /// Shows a finished step: redraws the bar a few times a second, or prints about 20 lines a run.
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
  std::string bar_;  ///< what the bar's line shows now
  int64_t drawn_ns_ = 0;
};

}  // namespace ladder
