#include "common/data/sorted_records.h"

#include <cerrno>
#include <system_error>

#include "common/error.h"
#include "kernels/mapped_file.h"

namespace ladder {

NamelessFile::NamelessFile(const std::filesystem::path& directory)
    : directory_(directory), file_(open_temporary_file(directory.string())) {
  if (!file_) fail("made");
}

void NamelessFile::write(std::span<const std::byte> bytes) {
  const bool written = std::fseek(file_.get(), 0, SEEK_END) == 0 &&
                       std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) fail("written");
}

void NamelessFile::read(int64_t begin, std::span<std::byte> out) const {
  errno = 0;
  const bool read = std::fseek(file_.get(), begin, SEEK_SET) == 0 &&
                    std::fread(out.data(), 1, out.size(), file_.get()) == out.size();
  if (!read) fail("read");
}

void NamelessFile::fail(const char* verb) const {
  throw UserError("--out: a file of records in {}, beyond --memory-limit, cannot be {}: {}",
                  directory_.string(), verb, std::generic_category().message(errno));
}

}  // namespace ladder
