#include "common/save/directory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/file.h>
#include <sys/stat.h>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/output_file.h"
#include "common/save/manifest.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCurrent = "current";
constexpr std::string_view kForm = "generation-";

/// What others open: in the directory these are links.
bool is_linked(std::string_view name) {
  return is_of_model(name) || name == kTokenizerFile || name == kTokenizerConfigFile;
}

[[noreturn]] void fail(const fs::path& dir) {
  throw UserError("--save {}: cannot be written: {}", dir.string(),
                  std::generic_category().message(errno));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));  // a link that leads nowhere exists
}

/// Where a symbolic link leads; empty if it is no link.
std::string target(const fs::path& link) {
  std::error_code ignored;
  return fs::read_symlink(link, ignored).string();
}

/// The target of the link with that name in the directory.
std::string target_of(const std::string& name) { return kCurrent + ("/" + name); }

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// "generation-200.4711"
bool is_generation(std::string_view name) {
  if (!name.starts_with(kForm)) return false;
  name.remove_prefix(kForm.size());
  const size_t dot = name.find('.');
  return dot != name.npos && is_number(name.substr(0, dot)) && is_number(name.substr(dot + 1));
}

/// Whether a generation has a file of this name, perhaps a partial one: "config.json.partial".
bool is_in_generation(std::string_view name) {
  if (name.ends_with(kPartial)) name.remove_suffix(kPartial.size());
  return is_linked(name) || name == kManifestFile || name == kOptimizerFile || name == kCurrent;
}

/// Returns whether it is removed. A directory that holds anything else stays as it is.
bool remove_generation(const fs::path& path) {
  const std::vector<std::string> names = names_in(path);
  if (!std::all_of(names.begin(), names.end(), is_in_generation)) return false;
  std::error_code error, ignored;
  // The manifest goes first. So a generation that has it and lacks another file is damaged: it was
  // not being removed.
  fs::remove(path / kManifestFile, error);
  if (error) return false;
  for (const std::string& name : names) fs::remove(path / name, ignored);
  return fs::remove(path, ignored);
}

enum class Finding : uint8_t { Committed, Leftover, Damaged };

/// What a generation is that `current` does not name.
Finding look_at(const fs::path& path) {
  if (is_there(path / kCurrent) || !is_there(path / kManifestFile)) return Finding::Leftover;
  try {
    for (const auto& [name, sum] : Manifest::read(path).files) {
      std::error_code ignored;
      if (fs::file_size(path / name, ignored) != static_cast<uintmax_t>(sum.bytes))
        return Finding::Damaged;
    }
  } catch (const UserError&) {
    return Finding::Damaged;
  }
  return Finding::Committed;
}

/// All generations except `current`.
std::vector<std::string> others_in(const fs::path& dir, const std::string& current) {
  std::vector<std::string> names = names_in(dir);
  std::erase_if(names, [&](const std::string& name) {
    std::error_code ignored;
    return !is_generation(name) || name == current ||
           !fs::is_directory(fs::symlink_status(dir / name, ignored));
  });
  return names;
}

/// Those of them that have been `current`, by their steps: a copy has new times.
std::vector<std::string> committed_in(const fs::path& dir, const std::string& current) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : others_in(dir, current))
    if (look_at(dir / name) == Finding::Committed)
      found.emplace_back(Manifest::read(dir / name).steps(), name);
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (const auto& [steps, name] : found) names.push_back(name);
  return names;
}

void make_link(const fs::path& dir, const std::string& to, const fs::path& link) {
  std::error_code error;
  fs::create_symlink(to, link, error);
  if (error)
    throw UserError("--save {}: cannot hold a symbolic link: {}; legal is a file system that can",
                    dir.string(), error.message());
}

}  // namespace

std::optional<fs::path> checkpoint_in(const fs::path& dir) {
  const fs::path link = dir / kCurrent;
  if (const std::string to = target(link); !to.empty()) return dir / to;
  // A copy whose maker followed the link.
  if (is_there(link / kManifestFile)) return link;
  if (is_there(dir / kManifestFile)) return dir;
  // A copy whose maker left links out, or a link that was lost.
  const std::vector<std::string> whole = committed_in(dir, "");
  if (!whole.empty()) return dir / whole.back();
  return std::nullopt;
}

bool is_unnamed(const fs::path& dir, const fs::path& found) {
  return found != dir && found.filename() != kCurrent && target(dir / kCurrent).empty();
}

std::string current_generation(const fs::path& dir) {
  const auto refuse = [&](const char* name) {
    throw UserError(
        "--save {}: holds {}, which no --save has put there; legal is another directory",
        dir.string(), name);
  };
  if (is_there(dir / kManifestFile)) refuse(kManifestFile);
  for (const std::string& name : names_in(dir))
    if (is_linked(name) && target(dir / name) != target_of(name)) refuse(name.c_str());
  std::string name = target(dir / kCurrent);
  if (is_there(dir / kCurrent) && !is_generation(name)) refuse(kCurrent);
  return name;
}

SaveDirectory::SaveDirectory(const std::string& dir, int64_t keep)
    : path_(dir), run_(std::random_device()()), keep_(keep) {
  std::error_code error;
  created_ = fs::create_directories(path_, error);
  if (!error && !fs::is_directory(path_, error) && !error)
    error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw UserError("--save {}: cannot be a directory: {}", dir, error.message());
  for (fs::path at = fs::absolute(path_); created_ && at.has_relative_path(); at = at.parent_path())
    if (!sync_directory(at.parent_path())) fail(path_);
  const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(path_);
  fd_.reset(new int(fd));
  locked_ = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (!locked_ && errno == EWOULDBLOCK)
    throw UserError("--save {}: another program is saving there; legal is another directory", dir);
  const std::string current = current_generation(path_);
  if (locked_) {  // else a program that still runs may be at work on them
    remove_leftovers();
    kept_ = committed_in(path_, current);
  }
  if (!current.empty()) kept_.push_back(current);
  Generation(*this, 0).create();
}

SaveDirectory::~SaveDirectory() {
  std::error_code ignored;
  if (created_) fs::remove(path_, ignored);  // if it is empty
}

fs::path SaveDirectory::generation(int64_t steps) const {
  return path_ / fmt::format("{}{}.{}", kForm, steps, run_);
}

void SaveDirectory::remove_leftovers() const {
  for (const std::string& name : others_in(path_, current_generation(path_))) {
    const fs::path path = path_ / name;
    if (look_at(path) == Finding::Leftover && remove_generation(path))
      tell(fmt::format("note: {} is removed, which a killed program had left", path.string()));
  }
}

void SaveDirectory::remove_old() {
  for (; std::ssize(kept_) > keep_; kept_.erase(kept_.begin()))
    if (!kept_.front().empty()) remove_generation(path_ / kept_.front());
}

void SaveDirectory::remove_stale_links() const {
  if (!locked_) return;  // another program may be about to switch
  std::error_code ignored;
  for (const std::string& name : names_in(path_))
    if (is_linked(name) && target(path_ / name) == target_of(name) &&
        !fs::exists(path_ / name, ignored))
      fs::remove(path_ / name, ignored);
}

std::unique_ptr<SaveDirectory> open_save_directory(const std::string& dir, int64_t keep,
                                                   bool shared, Comm* comm) {
  const bool first = !comm || comm->rank() == 0;
  std::unique_ptr<SaveDirectory> home;
  if (first) home = std::make_unique<SaveDirectory>(dir, keep);
  if (!comm || comm->size() == 1) return home;
  std::optional<Generation> probe;
  if (first) probe.emplace(*home, 0).create();
  uint32_t run = first ? home->run() : 0;
  comm->broadcast({.ptr = &run, .dtype = Dtype::U8, .shape = {sizeof run}}, 0);
  if (!first) home = std::make_unique<SaveDirectory>(dir, run, keep);
  const std::string seen = home->generation(0).string();
  const bool writes = !shared || ::access(seen.c_str(), R_OK | W_OK | X_OK) == 0;
  const std::vector<std::string> votes = gather_text(*comm, writes ? "" : dir);
  for (size_t rank = 0; rank < votes.size(); ++rank)
    if (!votes[rank].empty())
      throw UserError(
          "--save {}: rank {} does not see in {} what rank 0 has written there; legal is a "
          "directory that all ranks share",
          dir, rank, votes[rank]);
  return home;
}

void make_generation(const fs::path& generation) {
  if (::mkdir(generation.c_str(), 0777) != 0 && errno != EEXIST) fail(generation.parent_path());
}

// Without locks no other program has the name, because a run draws its number.
Generation::Generation(SaveDirectory& home, int64_t steps)
    : home_(home), path_(home.generation(steps)) {
  CHECK(std::ranges::count(home.kept_, path_.filename().string()) == 0, "{} twice", path_.string());
}

void Generation::create() const {
  make_generation(path_);
  make_link(home_.path_, path_.filename().string(), path_ / kCurrent);
}

Generation::~Generation() {
  if (published_ || target(home_.path_ / kCurrent) == path_.filename()) return;
  remove_generation(path_);
  home_.remove_stale_links();
}

void Generation::publish() {
  const fs::path& dir = home_.path_;
  const std::string now = current_generation(dir);
  if (!now.empty() && (home_.kept_.empty() || now != home_.kept_.back()))
    throw UserError(
        "--save {}: another program has saved there meanwhile, and its checkpoint stays",
        dir.string());
  for (const std::string& name : names_in(path_))
    if (is_linked(name) && !is_there(dir / name)) make_link(dir, target_of(name), dir / name);
  if (!sync_directory(path_) || !sync_directory(dir)) fail(dir);
  // A network file system may rename and then answer that there was nothing to rename.
  if (std::rename((path_ / kCurrent).c_str(), (dir / kCurrent).c_str()) != 0 &&
      target(dir / kCurrent) != path_.filename())
    fail(dir);
  published_ = true;
  home_.kept_.push_back(path_.filename().string());
  // Those before must stay until the switch is on the disk.
  if (!sync_directory(dir)) fail(dir);
  home_.remove_old();
  home_.remove_stale_links();
}

}  // namespace ladder
