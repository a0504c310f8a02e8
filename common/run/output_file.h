// OutputFile: a file that appears under its name only once it is complete.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ladder {

/// The file that a path names, through symbolic links that lead somewhere, whether it exists or
/// not.
std::filesystem::path resolved(const std::filesystem::path& path);

/// Puts the names in a directory on the disk: a file that is created or renamed there is safe only
/// then. Some file systems cannot do this, which is no failure. @return whether it has not failed;
/// else errno says why
bool sync_directory(const std::filesystem::path& dir);

/// Writes NAME.<pid>-<i>.tmp beside the target and renames it over the target in commit(). Until
/// then, and for good if the program dies, an older file of that name is untouched. A program that
/// is killed leaves the temporary file.
class OutputFile {
 public:
  /// @param what for messages: "--trace"
  /// @throws UserError if no file can be created there, or if `path` is no regular file
  OutputFile(const std::string& path, std::string what);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes the temporary file if commit() did not happen.
  ~OutputFile();

  /// @throws UserError if the disk takes no more
  void write(std::string_view bytes);
  /// Flushes to the disk and renames. The file is closed.
  /// @throws UserError, if the rename may not be on the disk, too
  void commit();
  /// Renames what has been written so far to NAME.partial. The target is untouched; where the disk
  /// takes no more, or after commit(), nothing happens.
  void keep_partial();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const;

  std::string what_;
  std::filesystem::path path_, temporary_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ladder
