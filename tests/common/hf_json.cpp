// JSON of unknown origin, and files that fail while they are read.

#include <filesystem>

#include <sys/stat.h>

#include "common/input_file.h"
#include "common/json.h"
#include "tests/common/bad_disk.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

std::string nested(int depth) {
  const auto n = static_cast<size_t>(depth);
  return std::string(n, '[') + std::string(n, ']');
}

TEST(Json, TooDeepIsRefused) {
  EXPECT_EQ(parse_json(nested(kMaxJsonDepth)).size(), 1u);
  EXPECT_USER_ERROR(parse_json(nested(kMaxJsonDepth + 1)), "nested deeper than 64 levels");
  EXPECT_USER_ERROR(parse_json(nested(1'000'000)), "nested deeper");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_USER_ERROR(parse_json(objects), "nested deeper");
}

TEST(Json, AKeyTwiceIsRefused) {
  EXPECT_USER_ERROR(parse_json(R"({"a":1,"b":2,"a":1})"), R"(the key "a" stands there twice)");
  EXPECT_USER_ERROR(parse_json(R"([{"x":{"a":1,"\u0061":1}}])"), R"(the key "a" stands)");
  EXPECT_EQ(user_error([] { parse_json(R"([{"a":{"a":1}},{"a":1}])"); }), "")
      << "in different objects";
}

TEST(Json, WhatIsNoJsonIsRefused) {
  for (const char* text : {"", " ", "{", "[1,2", "{\"a\":}", "[1]x", "nan", "[1e999]", "\"\xff\""})
    EXPECT_USER_ERROR(parse_json(text), "malformed JSON");
  EXPECT_USER_ERROR(parse_json("[1, 2, x]"), "at byte 8 of 9");
}

TEST(Json, AFileIsNamed) {
  const TempDir dir;
  EXPECT_USER_ERROR(read_json(dir / "missing"), "missing: no such file");
  write_file(dir / "bad", "[");
  EXPECT_USER_ERROR(read_json(dir / "bad"), "bad: malformed JSON");
  write_file(dir / "large", "");
  std::filesystem::resize_file(dir / "large", (16 << 20) + 1);
  EXPECT_USER_ERROR(read_json(dir / "large"), "legal are at most 16777216");
}

TEST(InputFile, ThatShrinksIsRefused) {
  const TempDir dir;
  write_file(dir / "x", std::string(100'000, 'x'));
  const InputFile file(dir / "x");
  std::filesystem::resize_file(dir / "x", 5000);
  std::string whole(100'000, ' ');
  EXPECT_USER_ERROR(file.read(0, std::as_writable_bytes(std::span(whole))), "x: became shorter");
}

TEST(InputFile, WhatTheDiskSaysIsSaid) {
  const RepairDisk repair;
  const TempDir dir;
  write_file(dir / "x", "0123456789");
  bad_disk.unreadable = "x";
  EXPECT_USER_ERROR(read_json(dir / "x"), "x: cannot be read: Input/output error");
}

TEST(InputFile, OnlyRegularFiles) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {dir / "pipe", dir.path(), std::string("/dev/zero")})
    EXPECT_USER_ERROR(InputFile{path}, path + ": cannot be read");
}

}  // namespace
}  // namespace ladder
