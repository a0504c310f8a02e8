#include "common/save/directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/file.h>
#include <sys/stat.h>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/output_file.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCurrent = "current";
constexpr std::string_view kForm = "generation-";
// What others open: in the directory these are links.
constexpr std::array kLinked = {kWeightsFile, kConfigFile, kTokenizerFile, kTokenizerConfigFile};

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
  return std::ranges::count(kLinked, name) > 0 || name == kManifestFile || name == kOptimizerFile ||
         name == kCurrent;
}

/// Returns whether it is removed. A directory that holds anything else stays as it is.
bool remove_generation(const fs::path& path) {
  const std::vector<std::string> names = names_in(path);
  if (!std::all_of(names.begin(), names.end(), is_in_generation)) return false;
  std::error_code ignored;
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
  return std::nullopt;
}

std::string current_generation(const fs::path& dir) {
  const auto refuse = [&](const char* name) {
    throw UserError(
        "--save {}: holds {}, which no --save has put there; legal is another directory",
        dir.string(), name);
  };
  if (is_there(dir / kManifestFile)) refuse(kManifestFile);
  for (const char* name : kLinked)
    if (is_there(dir / name) && target(dir / name) != target_of(name)) refuse(name);
  std::string name = target(dir / kCurrent);
  if (is_there(dir / kCurrent) && !is_generation(name)) refuse(kCurrent);
  return name;
}

SaveDirectory::SaveDirectory(const std::string& dir) : path_(dir) {
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
  current_ = current_generation(path_);
  Generation(*this, 0).link();
}

SaveDirectory::~SaveDirectory() {
  std::error_code ignored;
  if (created_) fs::remove(path_, ignored);  // if it is empty
}

void SaveDirectory::remove_leftovers() const {
  if (!locked_) return;  // a program that still runs may be at work on them
  for (const std::string& name : names_in(path_)) {
    const fs::path path = path_ / name;
    std::error_code ignored;
    const bool directory = fs::is_directory(fs::symlink_status(path, ignored));
    if (directory && is_generation(name) && name != current_ && remove_generation(path))
      tell(fmt::format("note: {} is removed, which a killed program had left", path.string()));
  }
}

Generation::Generation(SaveDirectory& home, int64_t steps) : home_(home) {
  // Without locks a name that was another program's should not come back.
  for (int i = ::getpid();; ++i) {
    name_ = fmt::format("{}{}.{}", kForm, steps, i);
    path_ = home.path_ / name_;
    if (::mkdir(path_.c_str(), 0777) == 0) return;
    if (errno != EEXIST) fail(home.path_);
  }
}

Generation::~Generation() {
  if (published_) return;
  remove_generation(path_);
  std::error_code ignored;
  if (is_there(home_.path_ / kCurrent)) return;
  for (const char* name : kLinked)
    if (target(home_.path_ / name) == target_of(name)) fs::remove(home_.path_ / name, ignored);
}

void Generation::link() const { make_link(home_.path_, name_, path_ / kCurrent); }

void Generation::publish() {
  const fs::path& dir = home_.path_;
  const std::string now = current_generation(dir);
  if (!now.empty() && now != home_.current_)
    throw UserError(
        "--save {}: another program has saved there meanwhile, and its checkpoint stays",
        dir.string());
  for (const char* name : kLinked)
    if (is_there(path_ / name) && !is_there(dir / name))
      make_link(dir, target_of(name), dir / name);
  link();
  if (!sync_directory(path_) || !sync_directory(dir)) fail(dir);
  if (std::rename((path_ / kCurrent).c_str(), (dir / kCurrent).c_str()) != 0) fail(dir);
  published_ = true;
  const std::string previous = std::exchange(home_.current_, name_);
  // The previous one must stay until the switch is on the disk.
  if (!sync_directory(dir)) fail(dir);
  if (!previous.empty()) remove_generation(dir / previous);
  std::error_code ignored;
  for (const char* name : kLinked)  // the previous one may have had a tokenizer, and this one none
    if (!is_there(path_ / name) && target(dir / name) == target_of(name))
      fs::remove(dir / name, ignored);
}

}  // namespace ladder
