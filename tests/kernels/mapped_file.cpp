// Memory in a temporary file keeps what is written, also when its pages are given back. Where there
// is no room for it: tests/18_offload/bad_input.cpp.
#include "kernels/mapped_file.h"

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>

#include <gtest/gtest.h>

namespace ladder {
namespace {

constexpr int64_t kBytes = 100'000;

class MappedFile : public ::testing::Test {
 protected:
  ~MappedFile() override { unmap_file(memory, kBytes); }

  void* memory = map_file(kBytes);
  std::span<uint8_t> bytes{static_cast<uint8_t*>(memory), kBytes};
  const int64_t page = mapped_bytes(1);
};

int64_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_F(MappedFile, BeginsAPageAndIsZero) {
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(page), 0);
  for (const uint8_t byte : bytes) ASSERT_EQ(byte, 0);
}

TEST_F(MappedFile, KeepsWhatIsWrittenWhenItsPagesAreGivenBack) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i % 251);
  drop_pages(memory, kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], i % 251) << i;
}

TEST_F(MappedFile, CountsThePagesInUse) {
  drop_pages(memory, kBytes);
  EXPECT_EQ(drop_pages(memory, kBytes), 0);
  for (uint8_t& byte : bytes) byte = 1;
  EXPECT_EQ(drop_pages(memory, kBytes), mapped_bytes(kBytes));
  EXPECT_EQ(drop_pages(memory, kBytes), 0);
}

TEST_F(MappedFile, LeavesNoFileOpen) {
  const int64_t before = open_files();
  void* const other = map_file(kBytes);
  EXPECT_EQ(open_files(), before);
  unmap_file(other, kBytes);
}

}  // namespace
}  // namespace ladder
