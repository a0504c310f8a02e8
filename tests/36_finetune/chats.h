// Chats for the tests of chapter 36, and their tokens where tokens are bytes.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace ladder::test {

/// The messages of chat i: one or two questions of some letters, and their answers.
inline nlohmann::json chat_at(int i) {
  nlohmann::json chat = nlohmann::json::array();
  const auto say = [&](const char* role, const std::string& content) {
    chat.push_back({{"role", role}, {"content", content}});
  };
  if (i % 5 == 0) say("system", "be");
  for (int turn = 0; turn <= i % 2; ++turn) {
    say("user", std::string(static_cast<size_t>(1 + (7 * i + turn) % 9), 'a' + i % 23));
    say("assistant", std::string(static_cast<size_t>(1 + (5 * i + turn) % 6), 'b' + (3 * i) % 22));
  }
  return chat;
}

inline std::string some_chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += nlohmann::json{{"messages", chat_at(i)}}.dump() + "\n";
  return lines;
}

/// The plain template in bytes, as the text of chat.h says it.
inline std::string bytes_of(const nlohmann::json& chat) {
  std::string bytes;
  for (const auto& said : chat)
    bytes += said["role"].get<std::string>() + ":\n" + said["content"].get<std::string>() + "\xFF";
  return bytes;
}

}  // namespace ladder::test
