#include "common/save/directory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <system_error>
#include <unistd.h>

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

/// "generation-200.4711"
bool is_generation(std::string_view name) {
  constexpr std::string_view kForm = "generation-", kDigits = "0123456789";
  if (!name.starts_with(kForm)) return false;
  const size_t dot = name.find_first_not_of(kDigits, kForm.size());
  return dot != name.npos && dot > kForm.size() && name[dot] == '.' && dot + 1 < name.size() &&
         name.find_first_not_of(kDigits, dot + 1) == name.npos;
}

/// The generations in a directory.
std::vector<std::string> generations_in(const fs::path& dir) {
  std::vector<std::string> names = names_in(dir);
  std::erase_if(names, [&](const std::string& name) {
    std::error_code ignored;
    return !is_generation(name) || !fs::is_directory(fs::symlink_status(dir / name, ignored));
  });
  return names;
}

/// How many steps a whole generation has done; nothing if it is damaged, or a leftover.
std::optional<int64_t> steps_of(const fs::path& generation) try {
  const Manifest manifest = Manifest::read(generation);
  for (const auto& [name, sum] : manifest.files) {
    std::error_code ignored;
    if (fs::file_size(generation / name, ignored) != static_cast<uintmax_t>(sum.bytes)) return {};
  }
  return manifest.steps();
} catch (const UserError&) {
  return {};
}

/// The whole generations, the one with the fewest steps first.
std::vector<std::string> whole_in(const fs::path& dir) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : generations_in(dir))
    if (const std::optional<int64_t> steps = steps_of(dir / name)) found.emplace_back(*steps, name);
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (const auto& [steps, name] : found) names.push_back(name);
  return names;
}

/// Returns whether it is removed. A directory that holds anything else stays as it is.
bool remove_generation(const fs::path& path) {
  const std::vector<std::string> names = names_in(path);
  const bool is_ours = std::ranges::all_of(names, [](std::string_view name) {
    if (name.ends_with(kPartial)) name.remove_suffix(kPartial.size());
    return is_linked(name) || name == kManifestFile || name == kOptimizerFile || name == kCurrent;
  });
  if (!is_ours) return false;
  std::error_code error, ignored;
  // The manifest goes first: what is half removed has none, and so is a leftover.
  fs::remove(path / kManifestFile, error);
  if (error) return false;
  for (const std::string& name : names) fs::remove(path / name, ignored);
  return fs::remove(path, ignored);
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
  // A copy whose maker left links out.
  const std::vector<std::string> whole = whole_in(dir);
  if (!whole.empty()) return dir / whole.back();
  return std::nullopt;
}

bool is_unnamed(const fs::path& dir, const fs::path& found) {
  return found != dir && found.filename() != kCurrent && target(dir / kCurrent).empty();
}

void refuse_foreign_files(const fs::path& dir) {
  const auto refuse = [&](const char* name) {
    throw UserError(
        "--save {}: holds {}, which no --save has put there; legal is another directory",
        dir.string(), name);
  };
  if (is_there(dir / kManifestFile)) refuse(kManifestFile);
  for (const std::string& name : names_in(dir))
    if (is_linked(name) && target(dir / name) != target_of(name)) refuse(name.c_str());
  if (is_there(dir / kCurrent) && !is_generation(target(dir / kCurrent))) refuse(kCurrent);
}

SaveDirectory::SaveDirectory(const std::string& dir, int64_t keep) : path_(dir), keep_(keep) {
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
  if (!locked_)
    tell(
        fmt::format("note: --save {}: no locks there: no other program may save there, and no "
                    "old checkpoint is removed",
                    dir));
  refuse_foreign_files(path_);
  remove_leftovers();
  Generation(*this, 0);  // whether that is possible
}

SaveDirectory::~SaveDirectory() {
  std::error_code ignored;
  if (created_) fs::remove(path_, ignored);  // if it is empty
}

void SaveDirectory::remove_leftovers() const {
  if (!locked_) return;  // a program that still runs may be at work on them
  for (const std::string& name : generations_in(path_)) {
    const fs::path path = path_ / name;
    const bool is_left = !is_there(path / kManifestFile) && target(path_ / kCurrent) != name;
    if (is_left && remove_generation(path))
      tell(fmt::format("note: {} is removed, which a killed program had left", path.string()));
  }
}

void SaveDirectory::remove_old() const {
  const std::string current = target(path_ / kCurrent);
  if (current.empty()) return;  // the disk does not say which one stays
  std::vector<std::string> others = whole_in(path_);
  // Those with more steps than `current` are of a run that was given up: they go first.
  std::ranges::rotate(others, std::ranges::find(others, current));
  std::erase(others, current);
  for (size_t i = 0; locked_ && i + static_cast<size_t>(keep_) <= others.size(); ++i)
    remove_generation(path_ / others[i]);
}

Generation::Generation(SaveDirectory& home, int64_t steps) : home_(home) {
  for (int number = ::getpid();; ++number) {  // that of another run with the same name may be there
    path_ = home.path_ / fmt::format("generation-{}.{}", steps, number);
    if (::mkdir(path_.c_str(), 0777) == 0) break;
    if (errno != EEXIST) fail(home.path_);
  }
  try {
    // publish() renames this link to `current` of the directory.
    make_link(home.path_, path_.filename().string(), path_ / kCurrent);
  } catch (const UserError&) {
    remove_generation(path_);
    throw;
  }
}

Generation::~Generation() {
  std::error_code error;
  const fs::path current = fs::read_symlink(home_.path_ / kCurrent, error);
  const bool none = error == std::errc::no_such_file_or_directory;
  // If the disk does not say which one is current, it may be this one.
  if (none || (!error && current != path_.filename())) remove_generation(path_);
}

void Generation::publish() {
  const fs::path& dir = home_.path_;
  if (!sync_directory(path_) || !sync_directory(dir)) fail(dir);
  if (std::rename((path_ / kCurrent).c_str(), (dir / kCurrent).c_str()) != 0) fail(dir);
  for (const std::string& name : names_in(path_))
    if (is_linked(name) && !is_there(dir / name)) make_link(dir, target_of(name), dir / name);
  // Those before must stay until the switch is on the disk.
  if (!sync_directory(dir)) fail(dir);
  home_.remove_old();
}

}  // namespace ladder
