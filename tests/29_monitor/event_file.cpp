// Event files: records with their checksums, messages, and where a torn file is cut.
#include "chapters/29_monitor/event_file.h"

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

// RFC 3720, appendix B.4, and the check value of CRC-32C.
TEST(EventFile, CastagnolisChecksum) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(masked(0xFFFFFFFFu), 0xA282EAD7u);
  EXPECT_EQ(masked(0x00008000u), 0xA282EAD9u);
}

TEST(EventFile, MessagesOfProtocolBuffers) {
  EXPECT_EQ(Message().number(2, 300).bytes(), "\x10\xAC\x02");
  EXPECT_EQ(Message().number(2, 0).real(1, 0.0).bytes(), "");
  EXPECT_EQ(Message().real(2, 0.0f).bytes(), std::string("\x15\0\0\0\0", 5));
  EXPECT_EQ(Message().real(1, 1.0).bytes(), std::string("\x09\0\0\0\0\0\0\xF0\x3F", 9));
  EXPECT_EQ(Message().text(3, "abc").bytes(),
            "\x1A\x03"
            "abc");
  EXPECT_EQ(Message().text(5, std::string(200, 'x')).bytes().substr(0, 3), "\x2A\xC8\x01");
  EXPECT_EQ(Message::varint(uint64_t{1} << 63).size(), 10U);
}

// Wherever a file ends, what is whole stays. A damaged record ends it, too.
TEST(EventFile, WholeRecords) {
  const std::string a = record_of("first"), b = record_of(std::string(300, 'b')), all = a + b;
  for (size_t n = 0; n <= all.size(); ++n)
    EXPECT_EQ(whole_records(std::string_view(all).substr(0, n)), n == all.size() ? n
                                                                 : n >= a.size() ? a.size()
                                                                                 : 0)
        << n;
  for (const size_t at : {a.size(), a.size() + 9, a.size() + 12, all.size() - 1}) {
    std::string bad = all;
    bad[at] ^= 1;
    EXPECT_EQ(whole_records(bad), a.size()) << at;
  }
  std::string huge = all;
  huge.replace(a.size(), 8, 8, '\xFF');  // n + 16 is more than 2^64
  EXPECT_EQ(whole_records(huge), a.size());
}

}  // namespace
}  // namespace ladder::test
