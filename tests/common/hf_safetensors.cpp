// Safetensors files: what is written is read, and every kind of damage is refused.

#include <cstring>
#include <numeric>

#include "common/checksum.h"
#include "tests/common/hf_model.h"

namespace ladder {
namespace {

/// A file from a header as text and its data.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

class Safetensors : public testing::Test {
 protected:
  std::string refusal(const std::string& bytes) {
    write_file(path_, bytes);
    const std::string message = user_error([&] { SafetensorsReader reader(path_); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_TRUE(message.empty() || message.starts_with(path_)) << "names the file: " << message;
    return message;
  }

  /// Three dtypes in one file.
  void write_sample() {
    f32_ = arena_.alloc(Mem::Param, "f", Dtype::F32, {2, 3});
    i64_ = arena_.alloc(Mem::Param, "i", Dtype::I64, {2});
    u8_ = arena_.alloc(Mem::Param, "u", Dtype::U8, {5});
    std::iota(f32_.data<float>(), f32_.data<float>() + 6, 0.5f);
    std::iota(i64_.data<int64_t>(), i64_.data<int64_t>() + 2, int64_t{-1} << 40);
    std::iota(u8_.data<uint8_t>(), u8_.data<uint8_t>() + 5, uint8_t{250});
    write_safetensors(path_,
                      {{"i", Dtype::I64, {2}}, {"f", Dtype::F32, {2, 3}}, {"u", Dtype::U8, {5}}},
                      {i64_, f32_, u8_});
  }

  TempDir dir_;
  std::string path_ = dir_ / "x.safetensors";
  Arena arena_;
  Tensor f32_, i64_, u8_;
};

void expect_bytes(const SafetensorsReader& reader, const TensorEntry& entry, Tensor tensor) {
  const std::vector<std::byte> found = bytes_of(reader, entry);
  ASSERT_EQ(std::ssize(found), tensor.bytes());
  EXPECT_EQ(std::memcmp(found.data(), tensor.ptr, found.size()), 0);
}

TEST_F(Safetensors, RoundTrip) {
  write_sample();
  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.entries().size(), 3u);
  expect_bytes(reader, reader.expect("f", Dtype::F32, {2, 3}), f32_);
  expect_bytes(reader, reader.expect("i", Dtype::I64, {2}), i64_);
  expect_bytes(reader, reader.expect("u", Dtype::U8, {5}), u8_);
}

// The checksum is the CRC-32C of the file, however the file is cut into runs.
TEST_F(Safetensors, SumsAreThoseOfTheirRuns) {
  write_sample();
  const std::string text = read_file(path_);
  const auto bytes = std::as_bytes(std::span(text));
  const FileSum sum = SafetensorsReader(path_).sum();
  EXPECT_EQ(sum.bytes, std::ssize(text));
  for (const size_t first : {size_t{0}, size_t{1}, size_t{7}, size_t{100}, text.size()}) {
    const auto behind = static_cast<int64_t>(text.size() - first);
    const uint32_t runs =
        crc32c_of_range(bytes.subspan(first), 0) ^ crc32c_of_range(bytes.first(first), behind);
    EXPECT_EQ(sum_of_runs(runs, std::ssize(text)), sum) << first;
    EXPECT_NE(sum_of_runs(runs ^ crc32c_of_range(bytes.first(3), 1), std::ssize(text)), sum);
  }
}

// RFC 3720, B.4, and the check value that catalogs name.
TEST(Crc32c, IsThatOfOthers) {
  const auto crc = [](const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return crc32c_of_file(crc32c_of_range(bytes, 0), std::ssize(text));
  };
  EXPECT_EQ(crc("123456789"), 0xe3069283u);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
  // A long run is the sum of its parts.
  std::string text(150'001, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
  const auto bytes = std::as_bytes(std::span(text));
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 1000) {
    const size_t n = std::min<size_t>(1000, bytes.size() - i);
    sum ^= crc32c_of_range(bytes.subspan(i, n), std::ssize(text) - static_cast<int64_t>(i + n));
  }
  EXPECT_EQ(crc32c_of_range(bytes, 0), sum);
}

TEST_F(Safetensors, ReadsAPartOfATensor) {
  write_sample();
  const SafetensorsReader reader(path_);
  float two[2];
  reader.read(reader.entries().at("f"), 12, std::as_writable_bytes(std::span(two)));
  EXPECT_EQ(two[0], 3.5f);
  EXPECT_EQ(two[1], 4.5f);
  EXPECT_THROW(reader.read(reader.entries().at("f"), 20, std::as_writable_bytes(std::span(two))),
               CheckError)
      << "into the next tensor";
}

TEST_F(Safetensors, DataIsAligned) {
  write_sample();
  uint64_t header = 0;
  std::memcpy(&header, read_file(path_).data(), 8);
  EXPECT_EQ((8 + header) % 64, 0u);
  const SafetensorsReader reader(path_);
  for (const auto& [name, entry] : reader.entries())
    EXPECT_EQ(entry.begin % (name == "i" ? 8 : 4), 0) << name;
}

TEST_F(Safetensors, ExpectNamesWhatIsThere) {
  write_sample();
  const SafetensorsReader reader(path_);
  EXPECT_USER_ERROR(reader.expect("g", Dtype::F32, {2, 3}), "no tensor g");
  EXPECT_USER_ERROR(reader.expect("f", Dtype::F32, {3, 2}), "f is F32 [2,3], not F32 [3,2]");
  EXPECT_USER_ERROR(reader.expect("f", Dtype::I32, {2, 3}), "f is F32 [2,3], not I32 [2,3]");
}

TEST_F(Safetensors, ReadsWhatOthersWrite) {
  // A dtype that we only skip, a scalar, an empty tensor; no metadata, no padding.
  write_file(path_, file_of(R"({"h":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                            R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})",
                            "ab"));
  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.entries().at("h").bytes(), 2);
  EXPECT_EQ(reader.entries().at("e").bytes(), 0);
}

TEST_F(Safetensors, RefusesEveryTruncation) {
  write_sample();
  const std::string whole = read_file(path_);
  for (size_t n = 0; n < whole.size(); ++n)
    ASSERT_NE(refusal(whole.substr(0, n)), "") << "after " << n << " bytes";
  EXPECT_EQ(refusal(whole), "");
  EXPECT_NE(refusal(whole + "x"), "");
}

TEST_F(Safetensors, RefusesBadHeaders) {
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  const auto two = [](int begin, int end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}}}})",
                       begin, end);
  };
  const auto says = [&](const std::string& header, size_t bytes = 4) {
    return refusal(file_of(header, std::string(bytes, '1')));
  };
  EXPECT_EQ(says(one("F32", "[1]", "[0,4]")), "");
  EXPECT_EQ(says(two(4, 8), 8), "");
  EXPECT_NE(refusal(std::string(8, '\xff') + "{}").find("header would have"), std::string::npos);
  const std::string u8 = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::tuple<std::string, size_t, const char*> bad[] = {
      {"not json", 0, "malformed"},
      {"[1,2]", 0, "malformed"},
      {R"({"a":3})", 0, "malformed"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "malformed"},
      {"{" + u8 + "," + u8 + "}", 4, R"("a" stands there twice)"},
      {one("F32", "[2]", "[0,8]"), 4, "would be bytes"},
      {one("F32", "[2]", "[4,12]"), 4, "would be bytes"},
      {one("F32", "[2]", "[8,0]"), 4, "would be bytes"},
      {one("F32", "[2]", "[0,4]"), 4, "malformed: a is F32 [2] in 4 bytes"},
      {two(3, 7), 7, "overlap"},
      {two(0, 4), 4, "overlap"},
      {two(5, 9), 9, "gap"}};
  for (const auto& [header, bytes, part] : bad)
    EXPECT_NE(says(header, bytes).find(part), std::string::npos) << header;
  // The fourth has a size that wraps around to 4 bytes.
  for (const char* shape :
       {"[-1,-1]", "[-1]", "[1.0]", "[4611686018427387905]", "[4294967296,4294967296]",
        "[3,9223372036854775807]", "[18446744073709551615]", "[true]", "1"})
    EXPECT_NE(says(one("F32", shape, "[0,4]")), "") << shape;
  for (const char* offsets :
       {"[-4,4]", "[0,4,4]", "[0]", "[0.0,4]", "[0,18446744073709551615]", "4"})
    EXPECT_NE(says(one("F32", "[1]", offsets)), "") << offsets;
}

// A type that is newer than Ladder is no damage. It is refused only if that tensor is needed.
TEST_F(Safetensors, TypesThatAreNotKnownAreOnlySkipped) {
  for (const char* dtype : {"F4", "F8_E8M0", "F6_E2M3", "I4"}) {
    write_file(path_, file_of(fmt::format(R"({{"a":{{"dtype":"{}","shape":[8],)"
                                          R"("data_offsets":[0,4]}}}})",
                                          dtype),
                              "1234"));
    const SafetensorsReader reader(path_);
    EXPECT_EQ(reader.entries().at("a").dtype, dtype);
    EXPECT_USER_ERROR(reader.expect("a", Dtype::F32, {8}), std::string("a is ") + dtype);
  }
  const std::string known = R"({"a":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}})";
  EXPECT_EQ(refusal(file_of(known, "1234")), "");
}

}  // namespace
}  // namespace ladder
