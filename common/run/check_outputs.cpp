#include "common/run/check_outputs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "common/error.h"
#include "common/output_file.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

/// A name of a file, and which file that is: two names may mean one.
class Name {
 public:
  explicit Name(fs::path path) : path_(std::move(path)) {
    exists_ = ::stat(path_.c_str(), &found_) == 0;
  }
  const fs::path& path() const { return path_; }
  bool means(const Name& other) const {
    return path_ == other.path_ || (exists_ && other.exists_ && is_same(other.found_));
  }
  /// Whether a stream of the program leads to the file. A terminal or a pipe is none.
  bool is_stream(int fd) const {
    struct stat open = {};
    return exists_ && ::fstat(fd, &open) == 0 && S_ISREG(open.st_mode) && is_same(open);
  }

 private:
  bool is_same(const struct stat& other) const {
    return found_.st_dev == other.st_dev && found_.st_ino == other.st_ino;
  }

  fs::path path_;
  struct stat found_ = {};
  bool exists_;
};

struct Output {
  std::string flag;  ///< with its value: "--trace run"
  Name name;
  Name partial;
};

/// What the run reads, or --save.
struct Other {
  std::string flag;
  std::string given;
  Name name;
  std::vector<Name> inside;  ///< files of a directory
};

bool lies_in(const fs::path& path, const fs::path& directory) {
  const auto [end, ignored] =
      std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return end == directory.end();
}

/// Down to the files of a checkpoint, and no further: a directory may hold all that a user has.
std::vector<Name> files_in(const fs::path& directory) {
  std::vector<Name> all;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(directory, skip, error), end; !error && at != end;
       at.increment(error)) {
    if (std::error_code ignored; at->is_regular_file(ignored)) all.emplace_back(at->path());
    if (at.depth() > 0) at.disable_recursion_pending();
  }
  return all;
}

std::vector<Output> outputs_of(const RunOptions& o) {
  std::vector<Output> all;
  for (const auto& [flag, path] : {std::pair("--trace", o.trace), std::pair("--report", o.report),
                                   std::pair("--timeline", o.timeline)})
    if (!path.empty())
      all.push_back(
          {fmt::format("{} {}", flag, path), Name(resolved(path)), Name(partial_of(path))});
  return all;
}

std::vector<Other> others_of(const RunOptions& o) {
  std::vector<Other> all;
  for (const auto& [flag, path] :
       {std::pair("--data", o.data), std::pair("--config", o.config_file),
        std::pair("--load", o.load), std::pair("--save", o.save)})
    if (!path.empty())
      all.push_back({flag, path, Name(resolved_dir(path)), files_in(resolved_dir(path))});
  return all;
}

/// Of two outputs in one file the first would be lost.
void check_pair(const Output& a, const Output& b) {
  for (const Name* one : {&a.name, &a.partial})
    for (const Name* other : {&b.name, &b.partial})
      if (one->means(*other))
        throw UserError("{} and {}: both would write {}; an output takes a file of its own", a.flag,
                        b.flag, one->path().string());
}

void check_against(const Output& output, const Other& other) {
  const fs::path& file = output.name.path();
  const fs::path& place = other.name.path();
  if (file != place && lies_in(place, file))
    throw UserError("{}: a file, but {} {} has it as a directory", output.flag, other.flag,
                    other.given);
  if (file != place && lies_in(file, place))
    throw UserError("{}: no output may lie in the directory of {} {}", output.flag, other.flag,
                    other.given);
  for (const Name* name : {&output.name, &output.partial}) {
    const auto is_name = [&](const Name& inside) { return name->means(inside); };
    if (name->means(other.name) || std::any_of(other.inside.begin(), other.inside.end(), is_name))
      throw UserError("{}: would write {}, which belongs to {} {}; legal is another name",
                      output.flag, name->path().string(), other.flag, other.given);
  }
}

/// Where the shell sends what is printed, or takes what is read.
void check_streams(const Output& output) {
  constexpr std::array kStreams = {"input", "output", "error"};
  for (int fd = 0; fd < std::ssize(kStreams); ++fd)
    for (const Name* name : {&output.name, &output.partial})
      if (name->is_stream(fd))
        throw UserError("{}: the file of standard {}; an output takes a file of its own",
                        output.flag, kStreams[static_cast<size_t>(fd)]);
}

}  // namespace

fs::path resolved_dir(const std::string& path) {
  const fs::path found = resolved(path);
  return found.has_filename() ? found : found.parent_path();
}

void check_outputs(const RunOptions& o) {
  const std::vector<Output> outputs = outputs_of(o);
  const std::vector<Other> others = others_of(o);
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    check_streams(*output);
    for (auto next = output + 1; next != outputs.end(); ++next) check_pair(*output, *next);
    for (const Other& other : others) check_against(*output, other);
  }
}

}  // namespace ladder
