// RunOptions: the flags that all chapters share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/data/text.h"
#include "common/model/config.h"
#include "common/run/command_line.h"
#include "common/run/sampler.h"

namespace ladder {

struct RunOptions {
  std::string data;                    ///< text to train on
  TokenKind tokens = TokenKind::Auto;  ///< what it holds
  TextFormat format = {};              ///< the same, once check() has looked
  std::string model = "tiny";          ///< name of a preset; the next five override it
  std::optional<int64_t> seq_len, layers, heads, channels, vocab;
  bool tied_head = false;  ///< GptConfig::tied_head

  int64_t batch = 16;   ///< sequences of a step, over all ranks
  int64_t steps = 200;  ///< in total: a resumed run goes on up to it
  double lr = 1e-3;
  uint64_t seed = 1;
  std::string backend = "cpu";
  int ranks = 1;
  int64_t timeout = 60;  ///< seconds that ranks wait for one without a sign of life; 0: for ever
  std::optional<int> threads;  ///< of a rank

  int64_t eval_every = 0;  ///< steps; 0: at the end only
  int64_t sample = 0;      ///< tokens to generate at the end
  double temperature = 1;  ///< 0: greedy
  int64_t top_k = 0;       ///< 0: all tokens

  std::string save, load;  ///< directories; `load` may be a file of weights
  bool overwrite = false;  ///< the checkpoint in `save`, though the run does not load it
  int64_t save_every = 0;  ///< steps; 0: at the end only
  std::string trace, report, timeline;
  std::string config_file;       ///< that gave flags
  std::string command;           ///< as it was typed, or nearly
  std::vector<FlagValue> flags;  ///< all of the program: ranks compare them
  bool quiet = false;
  bool takes_experts = false;  ///< whether the program can train them: chapters 21 and 22 set it
  bool other_block = false;    ///< a lesson changes the block, and looks itself whether it fits
  bool plan_only = false;      ///< no text is read, no step taken

  void add_to(CommandLine& line);

  /// Looks at the files, too. @throws UserError if a value is impossible, naming the legal ones.
  void check();
  /// That no rank of so many counts past 2^63; for --plan-only, whose ranks check() does not know.
  /// @throws UserError
  void check_size(int64_t all_ranks) const;
  /// Without --ranks a run has as many as its layout takes, `degree`; mpirun has started them
  /// already.
  /// @throws UserError as check(), with that many
  void set_ranks(int64_t degree);
  /// Chapters 01 to 06 know one rank. @throws UserError if more are asked for.
  void refuse_ranks() const;

  /// The preset with its overrides, checked; where a lesson changes the block, only that each
  /// number is in its range. @throws UserError
  GptConfig gpt() const;
  /// --threads, or the cores that the program may use (affinity mask, quota of control groups)
  /// divided among the ranks of this machine; at least 1. On a device 1.
  int thread_count() const;
  /// What Text needs.
  TextOptions text(const GptConfig& gpt) const;
  /// What Sampler needs.
  SampleOptions sampling(const GptConfig& gpt) const;
};

/// Cores that the affinity mask of a process lets it run on (`taskset`, a container's cpuset); 0:
/// the calling thread. At least 1.
int cores_of(pid_t process);

/// Cores' worth of time that control groups (version 2: cpu.max) allow this process, rounded up: of
/// all groups that it is in. Without a quota as many as an int can say.
/// @param root of the file system, "/"; a test has another
int quota_of_groups(const std::filesystem::path& root = "/");

}  // namespace ladder
