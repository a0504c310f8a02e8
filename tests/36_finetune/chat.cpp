// Which tokens a chat has, and which of them are learned.
#include "chapters/36_finetune/chat.h"

#include <gtest/gtest.h>

#include "chapters/26_packing/packed_text.h"
#include "tests/36_finetune/chats.h"
#include "tests/common/refusal.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

/// A tokenizer of bytes with special tokens; its end of text is the last of them.
Tokenizer byte_tokenizer(const std::vector<std::string>& special) {
  Tokenizer tokenizer;
  for (int byte = 0; byte < 256; ++byte) tokenizer.tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& text : special) {
    const auto id = static_cast<uint32_t>(tokenizer.tokens.size());
    tokenizer.tokens.push_back(text);
    tokenizer.added[text] = {.id = id};
    tokenizer.end_of_text = id;
  }
  return tokenizer;
}

/// Tokens as text, what is learned in brackets.
std::string shown(const ChatTokens& chat, const Tokenizer* tokenizer) {
  std::string text;
  bool learned = false;
  for (size_t i = 0; i < chat.tokens.size(); ++i) {
    if (chat.learned[i] != learned) text += (learned = !learned) ? "[" : "]";
    const auto id = static_cast<size_t>(chat.tokens[i]);
    text += tokenizer    ? tokenizer->tokens[id]
            : id == 0xFF ? "."
                         : std::string(1, static_cast<char>(id));
  }
  return text + (learned ? "]" : "");
}

std::string shown(const std::string& line, const Tokenizer* tokenizer, Template form,
                  Learn learn = Learn::Answers) {
  Speller speller(tokenizer, form);
  return shown(read_chat(line, speller, learn), tokenizer);
}

const std::string kTwo =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}], "id": 3})";

TEST(Chats, LearnTheAnswerAndItsEnd) {
  EXPECT_EQ(shown(kTwo, nullptr, Template::Auto),
            "user:\nHi.assistant:\n[Ho.]user:\n?.assistant:\n[!.]");
  EXPECT_EQ(shown(kTwo, nullptr, Template::Auto, Learn::All),
            "[user:\nHi.assistant:\nHo.user:\n?.assistant:\n!.]");
  EXPECT_EQ(shown(kTwo, nullptr, Template::Auto, Learn::Text),
            "user:\nHi.assistant:\n[Ho].user:\n?.assistant:\n[!].");
  const Tokenizer plain = byte_tokenizer({"<|endoftext|>"});
  EXPECT_EQ(shown(kTwo, &plain, Template::Auto),
            "user:\nHi<|endoftext|>assistant:\n[Ho<|endoftext|>]"
            "user:\n?<|endoftext|>assistant:\n[!<|endoftext|>]");
  const Tokenizer chatml = byte_tokenizer({"<|im_start|>", "<|im_end|>", "<|endoftext|>"});
  EXPECT_EQ(shown(kTwo, &chatml, Template::Auto),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Ho<|im_end|>]\n"
            "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n[!<|im_end|>]\n");
}

// A user who writes the end of a message ends nothing.
TEST(Chats, NoTextSpellsASpecialToken) {
  const Tokenizer chatml = byte_tokenizer({"<|im_start|>", "<|im_end|>", "<|endoftext|>"});
  Speller speller(&chatml, Template::ChatMl);
  const ChatTokens chat = read_chat(
      R"({"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "<|im_start|>"}]})",
      speller, Learn::Answers);
  EXPECT_EQ(std::ranges::count(chat.tokens, speller.end()), 2);
  EXPECT_EQ(std::ranges::count(chat.tokens, 256), 2);
}

TEST(Chats, RefuseWhatIsNoChat) {
  for (const auto& [line, says] :
       {std::pair{"[]", "legal is {\"messages\""},
        {"{\"messages\": []}", "legal is {\"messages\""},
        {"{\"messages\": [{\"role\": \"user\"}]}", "a message has a role and a content"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}", "legal are system, user"}})
    EXPECT_USER_ERROR(shown(line, nullptr, Template::Auto), says);
  const Tokenizer plain = byte_tokenizer({"<|endoftext|>"});
  EXPECT_USER_ERROR(Speller(&plain, Template::ChatMl), "lacks <|im_start|>");
  const Tokenizer none = byte_tokenizer({});
  EXPECT_USER_ERROR(Speller(&none, Template::Auto), "has no token that ends a text");
}

class ChatFile : public ::testing::Test {
 protected:
  std::shared_ptr<const EncodedText> read(const std::string& lines, int64_t T) {
    write_file(home_ / "chats.jsonl", lines);
    counts_ = {};
    Speller speller(nullptr, Template::Auto);
    return read_chats(home_ / "chats.jsonl", speller, Learn::Answers, T, counts_);
  }

  TempDir home_;
  ChatCounts counts_;
};

TEST_F(ChatFile, CountsWhatIsCutAndWhatHasNoTarget) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "xyz"}]})";
  const std::string none = R"({"messages": [{"role": "user", "content": "abc"}]})";
  // 10 tokens of the user, 11 before the answer, and xyz with its end.
  const auto whole = read(line + "\n\n" + none + "\n" + line + "\n", 24);
  EXPECT_EQ(counts_.chats, 3);
  EXPECT_EQ(counts_.cut, 0);
  EXPECT_EQ(counts_.targetless, 1);
  EXPECT_EQ(counts_.learned, 2 * 4);
  EXPECT_EQ(whole->ends, (std::vector<int64_t>{25, 50}));
  const auto cut = read(line + "\n", 22);
  EXPECT_EQ(counts_.cut, 1);
  EXPECT_EQ(counts_.learned, 2);
  EXPECT_EQ(cut->ends, std::vector<int64_t>{23});
  read(line + "\n", 20);
  EXPECT_EQ(counts_.cut, 1);
  EXPECT_EQ(counts_.targetless, 1);
  EXPECT_USER_ERROR(read(line + "\n{}\n", 24), "line 2: legal is {\"messages\"");
}

// In rows, packed or not: every target that is learned, and no other.
TEST_F(ChatFile, TheMaskTravelsWithItsTokens) {
  constexpr int64_t kT = 64, kRows = 4;
  const auto text = read(test::some_chats(40), kT);
  for (const bool unpacked : {false, true}) {
    Arena arena;
    PackOptions packing;
    packing.documents = true;
    packing.unpacked = unpacked;
    packing.window = 16;
    PackedText packed({.path = "chats",
                       .format = {.width = 4},
                       .seq_len = kT,
                       .vocab = 256,
                       .encoded = text,
                       .file = std::make_shared<const InputFile>("chats", "--data", text->bytes)},
                      packing);
    BundleBatch batch(arena, packing, kRows, kRows, kT);
    RowCursor place(packing, kT);
    packed.draw(batch, place, 1, 0);
    const Bundles all = batch.slice(Ctx{}, 0, kRows);
    int64_t answers = 0;
    for (int64_t i = 0; i < all.rows.tokens.size(); ++i) {
      const int32_t token = all.rows.tokens.data<int32_t>()[i],
                    target = all.rows.targets.data<int32_t>()[i];
      EXPECT_GE(token, 0);
      answers += target == 0xFF;
      // In these chats an answer has its own letter, and a question's end is not learned.
      EXPECT_TRUE(target == kIgnore || target == 0xFF || (target >= 'b' && target <= 'w'))
          << target;
      if (token == ':') {
        EXPECT_EQ(target, kIgnore);
      }
    }
    EXPECT_GT(answers, 0);
    EXPECT_EQ(count_targets(all.rows), packed.targets().of_step(0, 0).targets);
    EXPECT_LT(count_targets(all.rows), batch.counts().trained / 2);
  }
}

}  // namespace
}  // namespace ladder
