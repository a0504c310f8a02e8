// OutputFile: a file that appears under its name only once it is complete.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ladder {

/// The file or directory that a path names, through symbolic links that lead somewhere, whether it
/// exists or not. The same for "sx/" and "sx".
std::filesystem::path resolved(const std::filesystem::path& path);

/// Puts the names in a directory on the disk: a file that is created or renamed there is safe only
/// then. Some file systems cannot do this, which is no failure. @return whether it has not failed;
/// else errno says why
bool sync_directory(const std::filesystem::path& dir);

inline constexpr std::string_view kPartial = ".partial";

/// Writes NAME.partial, which commit() renames to NAME. Until then, and for good if the program
/// dies, an older NAME is untouched.
///
/// NAME.partial is locked, so that no other program writes it meanwhile. One that a killed program
/// has left is overwritten, not before the first write.
class OutputFile {
 public:
  /// @param what for messages: "--trace"
  /// @throws UserError if no file can be created there, if `path` is no plain file, or another
  ///         program writes it
  OutputFile(const std::string& path, std::string what);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Without commit() and keep_partial() what it has written goes.
  ~OutputFile();

  /// @throws UserError if the disk takes no more
  void write(std::string_view bytes);
  /// Others may read what has been written. @throws UserError if the disk takes no more
  void flush();
  /// Flushes to the disk and renames. The file is closed.
  /// @throws UserError, if the rename may not be on the disk, too
  void commit();
  /// Leaves what has been written in NAME.partial, and NAME as it is. After commit(), and where
  /// nothing has been written, nothing happens.
  void keep_partial();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const;

  std::string what_;
  std::filesystem::path path_, partial_;
  std::unique_ptr<std::FILE, Close> file_;
  bool is_ours_ = false;  ///< what partial_ holds: nothing, or what was written here
};

/// The whole of a file at once. @throws UserError as OutputFile
void write_file(const std::string& path, const std::string& what, std::string_view text);

}  // namespace ladder
