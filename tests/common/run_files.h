// Files for tests: a directory that goes away, whole files as strings, and the message of a
// UserError.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/error.h"

namespace ladder {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "ladder-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// In blocks: under a sanitizer, byte by byte takes a second for a checkpoint.
inline std::string read_file(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Name and content of every file in a directory and below. A symbolic link has "-> " and where it
/// leads, a directory a slash and nothing.
inline std::map<std::string, std::string> files_in(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    const std::string name = entry.path().lexically_relative(dir).string();
    if (entry.is_symlink())
      files[name] = "-> " + std::filesystem::read_symlink(entry.path()).string();
    else if (entry.is_directory())
      files[name + "/"];
    else
      files[name] = read_file(entry.path().string());
  }
  return files;
}

/// What the UserError says that f() throws; "" if it throws none.
template <class F>
std::string user_error(F&& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

}  // namespace ladder

/// The statement throws a UserError that mentions `part`.
#define EXPECT_USER_ERROR(statement, part)                                                  \
  do {                                                                                      \
    const std::string message = ::ladder::user_error([&] { statement; });                   \
    EXPECT_NE(message.find(part), std::string::npos) << #statement << " says: " << message; \
    EXPECT_FALSE(message.empty());                                                          \
  } while (false)
