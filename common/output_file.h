// OutputFile: a file that appears under its name only once it is complete.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/input_file.h"

namespace ladder {

/// The file or directory that a path names, through symbolic links that lead somewhere, whether it
/// exists or not. The same for "sx/" and "sx".
std::filesystem::path resolved(const std::filesystem::path& path);

/// Writes the names in a directory to the disk. A file that was created or renamed there is safe
/// only after this. Some file systems cannot do it; that is no failure.
/// @return whether it succeeded; if not, errno says why
bool sync_directory(const std::filesystem::path& dir);

inline constexpr std::string_view kPartial = ".partial";

/// NAME.partial, which OutputFile(NAME) writes. Symbolic links are followed, as by resolved().
std::filesystem::path partial_of(const std::filesystem::path& path);

/// Writes NAME.partial, which commit() renames to NAME. Until then, and for good if the program
/// dies, an older NAME is untouched.
///
/// NAME.partial is locked, so that no other program writes it at the same time. A NAME.partial that
/// a killed program left is overwritten, but only by the first write.
class OutputFile {
 public:
  /// @param what for messages: "--trace"
  /// @throws UserError if no file can be created there, if `path` is no plain file, or another
  ///         program writes it
  OutputFile(const std::string& path, std::string what);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes what was written, unless commit() or keep_partial() was called.
  ~OutputFile();

  /// @throws UserError if the disk takes no more bytes
  void write(std::string_view bytes);
  /// Lets others read what was written. @throws UserError if the disk takes no more bytes
  void flush();
  /// Writes the file to the disk. Of several files that belong together, all come there before
  /// commit() renames the first. @throws UserError if the disk takes no more bytes
  void sync();
  /// Calls sync(), renames the file and closes it.
  /// @throws UserError if this fails, or if the rename may not have reached the disk
  void commit();
  /// Leaves what was written in NAME.partial, and leaves NAME as it is. It does nothing after
  /// commit(), or if nothing was written.
  void keep_partial();

 private:
  [[noreturn]] void fail() const;

  std::string what_;
  std::filesystem::path path_, partial_;
  FilePointer file_;
  bool is_ours_ = false;  ///< whether partial_ holds nothing, or what was written here
};

/// The whole of a file at once. @throws UserError as OutputFile
void write_file(const std::string& path, const std::string& what, std::string_view text);

}  // namespace ladder
