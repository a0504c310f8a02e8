// TensorBoard's event files, without a library: records, and the messages in them.
//
// A file is a sequence of records. A reader finds the end of each, and notices damage
// (tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"):
//
//   8 bytes   n, the length of the data, little-endian
//   4 bytes   masked CRC-32C of these 8 bytes
//   n bytes   the data: one Event
//   4 bytes   masked CRC-32C of the data
//
// An Event is a message of protocol buffers: fields that follow each other. Each is a key, which is
// 8 times the number of the field plus its wire type, and a value. A reader skips fields whose
// number it does not know. These are the fields that we write:
//
//   Event       1 wall_time (double)   2 step (varint)   3 file_version (text: "brain.Event:2")
//               5 summary (Summary)    7 session_log (SessionLog)
//   Summary     1 value (Value), once for each number
//   Value       1 tag (text)           2 simple_value (float)
//   SessionLog  1 status (varint: START is 1)
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/input_file.h"

namespace ladder {

/// The Castagnoli polynomial, its bits reversed: the lowest bit of a byte comes first.
inline constexpr uint32_t kCastagnoli = 0x82F63B78;

/// CRC-32C of `bytes`: the remainder of a division of polynomials over bits (RFC 3720, appendix
/// B.4).
inline uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
  }
  return ~crc;
}

/// What a record stores of a CRC: its bits rotated right by 15, plus a constant. Unmasked, all data
/// that end in their own CRC would have the same CRC.
inline uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8; }

/// The bytes of a number, the lowest first.
template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// The record that holds `data`.
inline std::string record_of(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(data) +
         little_endian(masked(crc32c(data)));
}

/// How many bytes at the beginning of `file` are whole records. A record that a killed program has
/// not finished may follow them.
inline size_t whole_records(std::string_view file) {
  constexpr size_t kHead = 12, kFoot = 4;
  const auto holds = [&](size_t at, std::string_view data) {
    return file.substr(at, 4) == little_endian(masked(crc32c(data)));
  };
  size_t end = 0;
  while (file.size() - end >= kHead + kFoot && holds(end + 8, file.substr(end, 8))) {
    uint64_t n = 0;
    std::memcpy(&n, file.data() + end, sizeof n);
    if (n > file.size() - end - kHead - kFoot) break;
    const std::string_view data = file.substr(end + kHead, n);
    if (!holds(end + kHead + n, data)) break;
    end += kHead + n + kFoot;
  }
  return end;
}

/// A message of protocol buffers. Each function adds a field. Readers take a missing number for 0,
/// so a 0 is left out. Only a float is written even if it is 0: a Value without one has no number.
class Message {
 public:
  /// 7 bits a byte, the lowest first; the highest bit says that more bytes follow.
  static std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
  }

  Message& number(uint64_t field, int64_t value) {
    if (value != 0) bytes_ += key(field, kVarint) + varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(uint64_t field, double value) {
    if (value != 0) bytes_ += key(field, kFixed64) + little_endian(value);
    return *this;
  }
  Message& real(uint64_t field, float value) {
    bytes_ += key(field, kFixed32) + little_endian(value);
    return *this;
  }
  /// Text, or another message.
  Message& text(uint64_t field, std::string_view value) {
    bytes_ += key(field, kLength) + varint(value.size()) + std::string(value);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5;
  static std::string key(uint64_t field, uint64_t type) { return varint(field << 3 | type); }

  std::string bytes_;
};

/// A number with its name.
struct Scalar {
  std::string tag;
  double value;  ///< written as a float, which simple_value is
};

/// The record that begins every file.
inline std::string version_record(double time) {
  return record_of(Message().real(1, time).text(3, "brain.Event:2").bytes());
}

/// A session start: the run begins or goes on at `step`. Readers drop what they have read of later
/// steps.
inline std::string start_record(double time, int64_t step) {
  const std::string start = Message().number(1, 1).bytes();
  return record_of(Message().real(1, time).number(2, step).text(7, start).bytes());
}

/// All numbers of a step.
inline std::string scalars_record(double time, int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const auto& [tag, value] : scalars)
    summary.text(1, Message().text(1, tag).real(2, static_cast<float>(value)).bytes());
  return record_of(Message().real(1, time).number(2, step).text(5, summary.bytes()).bytes());
}

/// One directory of event files. When write() returns, the operating system has the record.
class EventFiles {
 public:
  explicit EventFiles(std::filesystem::path dir) : dir_(std::move(dir)) {}

  /// Begins a file whose name sorts after all that are there. Cuts a torn record off the last one.
  /// @throws UserError if nothing can be written there
  void open() {
    std::error_code error;
    std::filesystem::create_directories(dir_, error);
    const int64_t number = next_number();
    if (number > 1) cut(dir_ / name_of(number - 1));
    path_ = dir_ / name_of(number);
    file_.reset(std::fopen(path_.c_str(), "wbxe"));
    if (!file_) fail();
  }
  bool is_open() const { return file_ != nullptr; }

  /// The number of the next file: one more than the largest that is there.
  /// @throws UserError if no name sorts after one that is there
  int64_t next_number() const {
    int64_t last = 0;
    for (const std::string& name : names_in(dir_.string())) {
      if (!name.starts_with(kForm)) continue;
      int64_t number = 0;
      const auto read =
          std::from_chars(name.data() + kForm.size(), name.data() + name.size(), number);
      if (read.ec == std::errc::result_out_of_range || number >= kMostFiles)
        throw UserError("--events: no name sorts after {}; legal is another directory",
                        (dir_ / name).string());
      last = std::max(last, number);
    }
    return last + 1;
  }

  /// @throws UserError if the disk takes no more
  void write(std::string_view records) {
    if (std::fwrite(records.data(), 1, records.size(), file_.get()) != records.size() ||
        std::fflush(file_.get()) != 0)
      fail();
  }

 private:
  static constexpr std::string_view kForm = "events.out.tfevents.";
  static constexpr int64_t kMostFiles = 999'999;  // six digits, so that names sort by number
  static std::string name_of(int64_t number) {
    return fmt::format("{}{:06}.ladder", kForm, number);
  }

  void cut(const std::filesystem::path& path) const {
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const size_t whole = whole_records(bytes);
    if (whole == bytes.size()) return;
    std::error_code error;
    std::filesystem::resize_file(path, whole, error);
    if (error)
      throw UserError("--events {}: its torn record cannot be cut off: {}", path.string(),
                      error.message());
    tell(fmt::format("note: {}: {} bytes of a torn record are cut off", path.string(),
                     bytes.size() - whole));
  }
  [[noreturn]] void fail() const {
    throw UserError("--events {}: cannot be written: {}", path_.string(),
                    std::generic_category().message(errno));
  }

  std::filesystem::path dir_, path_;
  FilePointer file_;
};

}  // namespace ladder
