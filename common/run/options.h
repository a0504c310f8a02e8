// RunOptions: the flags that all chapters share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/data/text.h"
#include "common/model/config.h"
#include "common/own_place.h"
#include "common/run/command_line.h"

namespace ladder {

struct RunTokenizer;
struct SampleOptions;

struct RunOptions : Given {
  std::string data;                    ///< text to train on
  std::string tokenizer;               ///< path of the one that encodes it; empty: that in `load`
  TokenKind tokens = TokenKind::Auto;  ///< what the text holds
  TextFormat format = {};              ///< of the file that is read, after check() has looked
  std::shared_ptr<const EncodedText> encoded;  ///< `data` as tokens, after check(), if it is text
  std::shared_ptr<const InputFile> file;       ///< the same, opened once for all ranks
  std::string model = "tiny";                  ///< name of a preset; the next five change it
  std::optional<int64_t> seq_len, layers, heads, channels, vocab;
  bool tied_head = false;  ///< GptConfig::tied_head

  int64_t batch = 16;   ///< sequences of a step, over all ranks
  int64_t steps = 200;  ///< in total: a resumed run goes on up to this number
  double lr = 1e-3;
  uint64_t seed = 1;
  std::string backend = "cpu";
  int ranks = 1;
  int64_t timeout = 600;       ///< seconds that a rank waits for others; 0: forever
  std::string fault;           ///< planted on purpose; common/run/fault.h
  std::optional<int> threads;  ///< per rank

  int64_t eval_every = 0;  ///< steps; 0: only at the end
  int64_t sample = 0;      ///< tokens to generate at the end
  double temperature = 1;  ///< 0: greedy
  int64_t top_k = 0;       ///< 0: all tokens

  std::string save, load;  ///< directories; `load` may also be a file of weights
  bool overwrite = false;  ///< the checkpoint in `save`, even if the run does not load it
  int64_t save_every = 0;  ///< steps; 0: only at the end
  int64_t keep = 1;        ///< checkpoints in `save`
  std::string trace, report, timeline;
  bool quiet = false;
  bool takes_experts = false;  ///< the program can train them; chapters 21 and 22 set it
  bool other_block = false;    ///< a lesson changes the block, and checks itself whether it fits
  std::optional<GptConfig> found;  ///< a lesson has read the model from a folder: no preset counts
  bool plan_only = false;          ///< reads no text and takes no step

  /// That of `tokenizer`, or of the directory `load`, after check(). null: there is none.
  std::shared_ptr<const RunTokenizer> text_tokenizer;

  void add_to(CommandLine& line);

  /// Also checks the files, and encodes the text if there is a tokenizer. @throws UserError that
  /// names the legal values if a value is impossible
  void check();
  /// Checks that --trace, --report and --timeline are none of `taken`: what the run reads, and what
  /// else it writes. check() does it for its own flags. @throws UserError
  void check_outputs(NamedPaths taken) const;
  /// Checks that no rank counts beyond 2^63 if there are `all_ranks` ranks. For --plan-only,
  /// because check() does not know its ranks. @throws UserError
  void check_size(int64_t all_ranks) const;
  /// Sets --ranks, if it is not given, to `degree`: the ranks that the layout needs. Under mpirun
  /// the ranks are already started.
  /// @throws UserError as check() does, with that many ranks
  void set_ranks(int64_t degree);
  /// For a chapter that knows one rank. @throws UserError if more are asked for
  void refuse_ranks() const;
  /// check() calls it. Saver calls it again when it holds the lock of --save, because another
  /// program may have saved there meanwhile.
  /// @throws UserError if --save has a checkpoint that the run does not go on from, and there is no
  /// --overwrite
  void refuse_to_replace() const;
  /// check() calls it for the checkpoint that it finds, Run for the one that was loaded.
  /// @throws UserError if --steps is too small when so many are `done`
  void check_steps_after(int64_t done) const;

  /// The preset with its changes, checked. If a lesson changes the block, only the range of each
  /// number is checked.
  /// @throws UserError
  GptConfig gpt() const;
  /// --threads. If it is not given: the cores that the program may use, divided by the ranks on
  /// this machine; at least 1.
  int thread_count() const;
  /// The options that Text needs.
  TextOptions text(const GptConfig& gpt) const;
  /// The options that Sampler needs.
  SampleOptions sampling(const GptConfig& gpt) const;

 private:
  void take_tokenizer();
  void take_text();
};

}  // namespace ladder
