// Sources of documents: each is a file or a directory of files, with a weight.
//
//   --sources web.bin:3,books:1    books is a directory: its *.bin, by name, are one source
//
// Before the first step every file is opened, compared with its index, and read for a checksum. So
// a file that is missing or was cut off ends the run then, and not at step 40,000. A token that is
// not of the vocabulary is found when it is read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chapters/26_packing/windows.h"
#include "chapters/27_data_order/dealing.h"
#include "common/checksum.h"
#include "common/data/document_file.h"
#include "common/error.h"
#include "common/number_in.h"
#include "common/run/agreement.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/save/manifest.h"

namespace ladder {

/// What a checkpoint calls its place, without --sources and with them.
constexpr const char *kDocumentsState = "documents", *kOrderState = "order";

/// A source as the command line names it.
struct SourceFiles {
  std::string path;  ///< as given: a file or a directory
  int64_t weight;
  std::vector<std::string> files = {};
  std::string checksum = {};  ///< "2 files, 0123456789abcdef": the same wherever they lie
};

/// Reads "web.bin:3". @throws UserError that says what is legal
inline SourceFiles read_source(const std::string& text) {
  const size_t colon = text.rfind(':');
  SourceFiles source{.path = text.substr(0, colon), .weight = 0};
  if (colon == std::string::npos || source.path.empty())
    throw UserError("--sources {}: it takes FILE:WEIGHT,..., as in web.bin:3,books.bin:1", text);
  source.weight = number_in<int64_t>(text.substr(colon + 1)).value_or(0);
  if (source.weight < 1 || source.weight > kMaxWeights)
    throw UserError("--sources {}: the weight must be a whole number from 1 to {}", text,
                    kMaxWeights);
  return source;
}

/// The file, or the files *.bin of the directory. @throws UserError if there is none
inline std::vector<std::string> files_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {path};
  std::vector<std::string> files;
  for (const std::string& name : names_in(path))
    if (name.ends_with(".bin")) files.push_back((std::filesystem::path(path) / name).string());
  if (files.empty())
    throw UserError(
        "--sources {}: a directory without files; legal are a file, and a directory "
        "with *.bin in it",
        path);
  return files;
}

/// Whether a file is that of --data, by whatever name. Its last tenth of documents is for
/// validation, and is no part of a source.
inline bool is_data(const std::string& file, const RunOptions& run) {
  std::error_code ignored;
  return std::filesystem::equivalent(file, run.data, ignored);
}

/// A checksum of all files of a source, and of what says where their documents end.
inline std::string checksum_of(const std::vector<std::string>& files, const RunOptions& run,
                               std::optional<int64_t> end_of_text) {
  Checksum sum;
  for (const std::string& file : files) {
    InputFile(file, "--sources");  // throws if it cannot be read
    const std::string index = DocumentFile::index_of(file);
    std::error_code ignored;
    const bool indexed = !end_of_text && index != file && std::filesystem::exists(index, ignored);
    const std::string all =
        fmt::format("{}, {}{}", identity_of(file, FilePart::All),
                    indexed ? identity_of(index, FilePart::All)
                            : fmt::format("ends at {}", end_of_text.value_or(-1)),
                    is_data(file, run) ? ", without its last tenth" : "");
    sum.update(std::as_bytes(std::span(all)));
  }
  return fmt::format("{} file{}, {}", files.size(), files.size() == 1 ? "" : "s", sum.hex());
}

struct SourceOptions {
  std::vector<std::string> given;
  int64_t epochs = 0;
  bool new_weights = false;
  std::optional<int64_t> eval_targets = {};
  std::vector<SourceFiles> sources = {};  ///< `given`, after find_files()

  void add_to(CommandLine& line) {
    line.group("27_data_order");
    line.add("--sources", given,
             "FILE:WEIGHT,... of documents to train on, each a file or a directory of *.bin; "
             "--data is then for validation alone, and all of it, unless it is a source",
             {.list = true});
    line.add("--epochs", epochs,
             "end before any source begins epoch N, counted from 0; 0: --steps alone ends a run");
    line.add("--new-weights", new_weights,
             "the weights of --sources may differ from those of --load, and hold from its next "
             "window on",
             {.needs = {"--load"}});
    line.add("--eval-targets", eval_targets,
             "a validation takes documents of --data until they have so many targets; 0: all",
             {.shown_default = "0, or 65536 if --data is a source", .needs = {"--sources"}});
  }

  bool on() const { return !given.empty(); }

  /// What of --data validates: all of it, or its last tenth if it trains, too.
  HeldOut held_out(const RunOptions& run) const {
    HeldOut held_out;
    if (!on()) return held_out;
    held_out.all = std::ranges::none_of(sources, [&](const SourceFiles& source) {
      return std::ranges::any_of(source.files, [&](auto& file) { return is_data(file, run); });
    });
    const int64_t most = eval_targets.value_or(held_out.all ? 0 : held_out.targets);
    held_out.targets = most == 0 ? INT64_MAX : most;
    return held_out;
  }

  /// Finds the files of each source and, unless --plan-only is given, reads them whole for a
  /// checksum. Each becomes a line of run.flags, because ranks compare these.
  /// @throws UserError if a file is missing, or a flag impossible
  void find_files(RunOptions& run, const PackOptions& packing) {
    require_range("--epochs", epochs, 0, kMaxCount);
    if (eval_targets) require_range("--eval-targets", *eval_targets, 0, kMaxCount);
    if (!on() && epochs > 0) throw UserError("--epochs {} needs --sources", epochs);
    if (on() && !packing.documents)
      throw UserError("--sources needs --documents: what is dealt are documents in rows");
    check_load(run);
    int64_t W = 0;
    for (const std::string& text : given) {
      SourceFiles& source = sources.emplace_back(read_source(text));
      W += source.weight;
      source.files = files_of(source.path);
      NamedPaths taken = named_paths("--sources", source.files);
      for (const std::string& file : source.files)
        taken.emplace_back("--sources", DocumentFile::index_of(file));
      run.check_outputs(taken);
      if (run.plan_only) continue;
      source.checksum = checksum_of(source.files, run, packing.end_of_text);
      run.flags.push_back({"the content of --sources " + source.path, source.checksum});
    }
    if (W > kMaxWeights)
      throw UserError("the weights of --sources sum to {}; legal are at most {}", W, kMaxWeights);
  }

 private:
  /// A run that goes on with --sources or without them, as it began. @throws UserError
  void check_load(const RunOptions& run) const {
    if (run.load.empty() || run.plan_only) return;
    const std::optional<Manifest> manifest = Manifest::find(run.load);
    if (!manifest || !manifest->state.contains(on() ? kDocumentsState : kOrderState)) return;
    throw UserError(
        "--load {}: its run read {}; legal are the same, or --load of its file of weights, from "
        "which a new run begins",
        run.load, on() ? "--data, without --sources" : "--sources");
  }
};

/// The documents of a source, numbered through all of its files.
class Source {
 public:
  /// Where a document's tokens are.
  struct Place {
    const DocumentFile* file;
    Range tokens;
  };

  /// @throws UserError if a file does not hold what its index says, or if no document has a target
  Source(const SourceFiles& source, const RunOptions& run, const GptConfig& gpt,
         std::optional<int64_t> end_of_text) {
    for (const std::string& path : source.files) {
      TextOptions text = run.text(gpt);
      text.path = path;
      text.flag = "--sources";
      text.encoded = nullptr;
      text.file = std::make_shared<const InputFile>(path, text.flag);
      text.format = find_format(*text.file, run.tokens, text.vocab, !!run.text_tokenizer);
      if (text.format.bytes() != run.format.bytes())
        throw UserError("{}: is read as {}, and --data {} as {}; legal are files of one kind",
                        text.file->name(), text.format.bytes() ? "text" : "tokens", run.data,
                        run.format.bytes() ? "text" : "tokens");
      const DocumentFile& file = files_.emplace_back(text, end_of_text);
      const int64_t count = file.count();
      ends_.push_back(documents() + (is_data(path, run) ? HeldOut().train(count) : count));
    }
    int64_t i = 0;
    while (i < documents() && find(i).tokens.size() < 2) ++i;
    if (i == documents())
      throw UserError(
          "--sources {}: none of its {} documents has two tokens; legal is a source to "
          "learn from",
          source.path, documents());
  }

  int64_t documents() const { return ends_.empty() ? 0 : ends_.back(); }

  Place find(int64_t i) const {
    const auto at = std::ranges::upper_bound(ends_, i);
    const auto f = static_cast<size_t>(at - ends_.begin());
    return {&files_[f], files_[f].document(i - (f > 0 ? ends_[f - 1] : 0))};
  }

 private:
  std::vector<DocumentFile> files_;
  std::vector<int64_t> ends_;  ///< documents up to the end of each file
};

}  // namespace ladder
