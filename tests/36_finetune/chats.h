// Chats for the tests of chapter 36, and their tokens where tokens are bytes.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

namespace ladder::test {

struct Said {
  std::string role, content;
};
using Chat = std::vector<Said>;

/// Chat i: one or two questions of some letters, and their answers.
inline Chat chat_at(int i) {
  Chat chat;
  if (i % 5 == 0) chat.push_back({"system", "be"});
  for (int turn = 0; turn <= i % 2; ++turn) {
    chat.push_back(
        {"user", std::string(static_cast<size_t>(1 + (7 * i + turn) % 9), 'a' + i % 23)});
    chat.push_back({"assistant",
                    std::string(static_cast<size_t>(1 + (5 * i + turn) % 6), 'b' + (3 * i) % 22)});
  }
  return chat;
}

inline std::string line_of(const Chat& chat) {
  std::string messages;
  for (const Said& said : chat)
    messages += fmt::format("{}{{\"role\": \"{}\", \"content\": \"{}\"}}",
                            messages.empty() ? "" : ", ", said.role, said.content);
  return "{\"messages\": [" + messages + "]}\n";
}

inline std::string some_chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += line_of(chat_at(i));
  return lines;
}

/// The plain template in bytes, as the text of chat.h says it.
inline std::string bytes_of(const Chat& chat) {
  std::string bytes;
  for (const Said& said : chat) bytes += said.role + ":\n" + said.content + "\xFF";
  return bytes;
}

}  // namespace ladder::test
