#include "common/run/tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>

#include <sys/file.h>

#include "common/checksum.h"
#include "common/comm/failure.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/output_file.h"
#include "common/run/agreement.h"
#include "common/run/options.h"
#include "common/save/directory.h"
#include "common/tokens/encode_files.h"
#include "common/tokens/token_file.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokens = ".tokens";

std::shared_ptr<const RunTokenizer> read(const std::string& path) {
  Tokenizer tokenizer = read_tokenizer(path);
  std::string hash = fingerprint(tokenizer);
  auto bytes = std::make_shared<const std::vector<int32_t>>(token_bytes(tokenizer));
  return std::make_shared<const RunTokenizer>(
      RunTokenizer{path, std::move(tokenizer), std::move(hash), std::move(bytes)});
}

/// The one beside the weights, which nobody has asked for.
std::shared_ptr<const RunTokenizer> read_beside(const std::string& load) try {
  return read(load);
} catch (const UserError& e) {
  throw UserError("{}; --tokens bytes takes --data without it", e.what());
}

bool has_tokenizer(const std::string& directory) {
  std::error_code ignored;
  return !directory.empty() && (fs::exists(fs::path(directory) / kTokenizerFile, ignored) ||
                                fs::exists(fs::path(directory) / "vocab.json", ignored));
}

fs::path cache_folder() {
  const auto of = [](const char* name) {
    const char* const value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  if (const fs::path own = of("LADDER_CACHE"); !own.empty()) return own;
  if (const fs::path all = of("XDG_CACHE_HOME"); all.is_absolute()) return all / "ladder";
  if (const fs::path home = of("HOME"); !home.empty()) return home / ".cache" / "ladder";
  throw UserError("--tokenizer: no folder to keep tokens in; LADDER_CACHE=FOLDER names one");
}

std::string digits_of(std::string_view text) {
  Checksum sum;
  sum.update(std::as_bytes(std::span(text)));
  return sum.hex();
}

/// A folder that this process alone writes to, as long as this lives. Others wait. A file system
/// without locks lets several in: each then writes the same bytes.
Descriptor lock_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  const int fd = failed ? -1 : ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    throw UserError(
        "--tokenizer: tokens cannot be kept in {}: {}; LADDER_CACHE=FOLDER names another folder",
        folder.string(),
        (failed ? failed : std::error_code(errno, std::generic_category())).message());
  Descriptor held(new int(fd));
  ::flock(fd, LOCK_EX);
  return held;
}

std::string digits_of_file(const fs::path& path) {
  return digits_of(identity_of(path.string(), FilePart::All));
}

/// The tokens in `folder` whose name begins so. The name ends with a hash of them, because a disk
/// or a user may have cut them short.
std::optional<fs::path> find_kept(const fs::path& folder, const std::string& begin) try {
  for (const std::string& name : names_in(folder.string()))
    if (name.starts_with(begin) && name == begin + digits_of_file(folder / name) + kTokens)
      return folder / name;
  return std::nullopt;
} catch (const UserError&) {  // not readable, or another process has just removed it
  return std::nullopt;
}

void encode(const RunTokenizer& tokenizer, const std::string& text, int threads, TokenKind kind,
            const fs::path& file) {
  TokenWriter writer(file.string(), TokenFile::Raw, kind, "--tokenizer: the tokens");
  encode_files(tokenizer.tokenizer, {text}, {.utf8 = Utf8::Bytes, .threads = threads}, writer);
  writer.commit();
}

}  // namespace

std::shared_ptr<const RunTokenizer> find_tokenizer(const std::string& path,
                                                   const std::string& folder) {
  // Where links are lost, it lies only in the generation.
  const std::string load =
      has_tokenizer(folder) ? folder : checkpoint_in(folder).value_or(folder).string();
  const bool there = has_tokenizer(load);
  if (path.empty()) return there ? read_beside(load) : nullptr;
  auto given = read(path);
  const auto beside = there ? read(load) : nullptr;
  if (beside && beside->hash != given->hash)
    throw UserError(
        "--tokenizer {} has {} tokens (hash {}), and --load {} was trained with another of {} "
        "tokens (hash {}); legal is --tokenizer {}",
        path, given->tokenizer.vocab(), given->hash, load, beside->tokenizer.vocab(), beside->hash,
        load);
  return given;
}

KeptTokens keep_tokens(const RunTokenizer& tokenizer, const std::string& text, int threads,
                       bool says) {
  const TokenKind kind = token_kind(TokenKind::Auto, tokenizer.tokenizer);
  const fs::path folder = cache_folder();
  // Two files of one name have another first hash each, and two states of one file another second.
  const std::string first = fmt::format("{}-{}-", fs::path(text).stem().string().substr(0, 40),
                                        digits_of(resolved(text).string() + tokenizer.hash));
  const std::string second = digits_of_file(text), begin = first + second + "-";
  const auto kept = [&](const fs::path& file) {
    return KeptTokens{file.string(), kind == TokenKind::Uint16 ? 2 : 4};
  };
  if (const auto file = find_kept(folder, begin)) return kept(*file);
  const Descriptor lock = lock_folder(folder);
  // Written while this process waited.
  if (const auto file = find_kept(folder, begin)) return kept(*file);
  std::vector<std::string> old;
  bool is_damaged = false;
  for (const std::string& name : names_in(folder.string())) {
    if (!name.starts_with(first) || !name.ends_with(kTokens)) continue;
    old.push_back(name);
    is_damaged = is_damaged || name.starts_with(begin);
  }
  if (says)
    tell(fmt::format("note: {}{} with {}; the tokens are in {}", text,
                     is_damaged    ? " is encoded anew, because its kept tokens are damaged,"
                     : old.empty() ? " is encoded"
                                   : " has changed since it was encoded, and is encoded anew",
                     tokenizer.path, folder.string()));
  // A name of this machine alone, because another one may write to the same folder.
  const fs::path own = folder / fmt::format("{}{}", begin, machine_name());
  encode(tokenizer, text, threads, kind, own);
  std::error_code ignored;
  if (digits_of_file(text) != second) {
    fs::remove(own, ignored);
    throw UserError("--data {}: was written to while it was encoded", text);
  }
  const fs::path file = folder / (begin + digits_of_file(own) + kTokens);
  for (const std::string& name : old) fs::remove(folder / name, ignored);
  fs::rename(own, file);
  sync_directory(folder);
  return kept(file);
}

std::string tokens_text(const RunOptions& options) {
  const RunTokenizer& known = *options.text_tokenizer;
  return fmt::format("tokens  {} of {}; --data is read from {}", known.tokenizer.vocab(),
                     known.path, options.token_file.empty() ? options.data : options.token_file);
}

// The check of a lab may have no text.
LossTargets targets_of(const RunOptions& options, const GptConfig& gpt) {
  if (options.data.empty())
    return {[](int64_t, int64_t tokens) { return TargetCount{.targets = tokens}; },
            [] { return TargetCount{}; }};
  const auto text = std::make_shared<const Text>(options.text(gpt));
  return {[=, seed = options.seed](int64_t step, int64_t tokens) {
            return text->step_targets(seed, step, tokens / gpt.seq_len);
          },
          [=] { return text->validation_targets(); }};
}

}  // namespace ladder
