// 36_finetune: with all targets it is 27; masks and adapters have the same bits on every layout; an
// adapter begins with the loss of its base, and its merged model ends with its loss.
#include "chapters/36_finetune/chat.h"
#include "tests/26_packing/document_pair.h"
#include "tests/36_finetune/chats.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class Finetune : public SameTrace {
 protected:
  Finetune() {
    write("chats.jsonl", some_chats(60));
    std::vector<std::vector<uint32_t>> documents(60);
    for (int i = 0; i < 60; ++i)
      for (const unsigned char byte : bytes_of(chat_at(i)).substr(0, 65))
        documents[i].push_back(byte);
    write_documents(path("chats.bin"), documents);
  }
  void save_base(const std::string& model) const {
    train("06_checkpointing", model + " --layers 2 --steps 2 --save base");
  }
  Trace tuned(const std::string& flags, Range range = {0, kSteps}) const {
    return trace("36_finetune", kChats + flags, range);
  }

  /// What the program says to the lines of typed.txt.
  Ended talk(const std::string& typed, const std::string& flags) const {
    write("typed.txt", typed);
    const Program typing("36_finetune", {"sh", "-c", "exec \"$0\" \"$@\" < typed.txt"});
    return run(typing, words("--threads 1 " + flags));
  }
  /// What chapter 31 writes to a prompt of these bytes on that line, up to the end of a message.
  std::string answer(const std::string& load, size_t line, const std::string& bytes,
                     const std::string& flags) const {
    std::vector<std::string> prompts(line, "1");
    prompts.push_back(
        fmt::format("{}", fmt::join(std::vector<uint8_t>(bytes.begin(), bytes.end()), " ")));
    std::string text;
    for (const std::string& prompt : prompts)
      text += nlohmann::json{{"prompt", prompt}}.dump() + "\n";
    write("prompts.jsonl", text);
    std::string said;
    const auto lines =
        lines_of("31_generate", "--prompts prompts.jsonl --load " + load + " " + flags);
    for (const int token : lines[line]["tokens"])
      if (said += static_cast<char>(token); token == 0xFF) break;
    return said;
  }
  /// --out of a program that reads and writes tokens as numbers.
  std::vector<nlohmann::json> lines_of(const std::string& program, const std::string& flags) const {
    succeed(program, "--tokens ids --out out.jsonl " + flags);
    return json_lines("out.jsonl");
  }
  void refused(const Ended& ended, std::string_view says) const {
    EXPECT_EQ(ended.status, 2) << says;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err << "\n" << says;
  }

  // The model of small_run() is not wanted: --base has one.
  const std::string kRows = "--pack-window 8 --batch 4 ",
                    kChats = "--model tiny --data chats.jsonl --base base " + kRows;
};

TEST_F(Finetune, WithAllTargetsIsChapter27) {
  for (const std::string model : {"--model tiny --layers 2 ", "--model llama-tiny --layers 2 "}) {
    const Trace all = trace("36_finetune", model + "--data chats.jsonl --learn all " + kRows);
    EXPECT_TRUE(
        same_trace(all, trace("27_data_order", model +
                                                   "--data chats.bin --tokens uint16 --documents "
                                                   "--chunk-length 64 --ranks 2 " +
                                                   kRows)));
    EXPECT_TRUE(different_trace(all, trace("36_finetune", model + "--data chats.jsonl " + kRows)));
  }
}

TEST_F(Finetune, AnyLayoutHasTheSameBits) {
  for (const std::string model : {"--model tiny", "--model llama-tiny"}) {
    save_base(model);
    for (const std::string what : {"", "--lora-rank 3 --lora-alpha 6 "}) {
      const Trace one = tuned(what);
      for (const char* layout :
           {"--ranks 2 --threads 2", "--ranks 4 --unpacked", "--micro-batch 1 --recompute full",
            "--unpacked --micro-batch 2 --ranks 2 --bucket-mb 0", "--ranks 4 --ddp naive"})
        EXPECT_TRUE(same_trace(one, tuned(what + layout))) << model << what << layout;
      const Trace first = tuned(what + "--ranks 2 --save half", {0, kHalf});
      const Trace rest = tuned(what + "--unpacked --load half", {kHalf, kSteps});
      EXPECT_TRUE(same_trace(one, joined(first, rest))) << model << what;
    }
  }
}

TEST_F(Finetune, AnAdapterBeginsWithTheLossOfItsBase) {
  for (const std::string model : {"--model tiny", "--model llama-tiny"}) {
    save_base(model);
    const Trace full = tuned(""), lora = tuned("--lora-rank 4"), other = tuned("--lora-rank 2");
    EXPECT_EQ(lora.steps[0].loss, full.steps[0].loss);
    EXPECT_NE(lora.steps[0].grad_norm, full.steps[0].grad_norm);
    EXPECT_TRUE(different_trace(lora, other));
    EXPECT_TRUE(different_trace(lora, tuned("--lora-rank 4 --lora-alpha 8")));
    EXPECT_TRUE(same_trace(tuned("--lora-rank 4 --lora-alpha 8"),
                           tuned("--lora-rank 4 --lora-alpha 4 --lora-rslora")));
  }
}

// Its loss is that of base and adapter, but for one rounding of each weight.
TEST_F(Finetune, AMergedModelHasTheLossOfItsAdapter) {
  for (const std::string model : {"--model tiny", "--model llama-tiny"}) {
    save_base(model);
    const auto loss = [&](const std::string& flags) {
      return report("36_finetune", "--model tiny --data chats.jsonl " + kRows + flags)["val_loss"]
          .get<double>();
    };
    std::filesystem::remove_all(path("merged"));
    const double adapted = loss(
        "--base base --lora-rank 4 --lora-alpha 32 --lr 0.01 --steps 8 --save adapter "
        "--save-merged "
        "merged");
    const double merged = loss("--base merged --steps 0"), base = loss("--base base --steps 0");
    EXPECT_NEAR(merged, adapted, 1e-5 * adapted) << model;
    EXPECT_GT(std::abs(base - adapted), 1e-3);
    // An adapter without the flags of its run: the folder says them.
    EXPECT_EQ(loss("--base base --load adapter --steps 8"), adapted);
    EXPECT_TRUE(std::filesystem::exists(path("adapter/adapter_model.safetensors")));
    EXPECT_FALSE(std::filesystem::exists(path("adapter/config.json")));
  }
}

// Line by line, and where a conversation goes on. Drawn or not, and with an adapter in the weights.
TEST_F(Finetune, AChatIsWhatChapter31Writes) {
  const std::string open =
      "\xFF"
      "assistant:\n";
  for (const std::string model : {"--model tiny", "--model llama-tiny"}) {
    save_base(model);
    std::filesystem::remove_all(path("merged"));
    train("36_finetune", kChats + "--steps 80 --lr 0.005 --save tuned");
    train("36_finetune", kChats + "--lora-rank 4 --lr 0.01 --save adapter --save-merged merged");
    for (const std::string t : {"0", "1"}) {
      const std::string first = answer("tuned", 0, "user:\nbb" + open, "--temperature " + t);
      ASSERT_EQ(first.back(), '\xFF') << "it has not learned to stop";
      const std::string both = "user:\nbb" + open + first + "user:\nc" + open;
      const std::string second = answer("tuned", 1, both, "--temperature " + t);
      const Ended two = talk("bb\nc\n", "--base tuned --chat " + t);
      EXPECT_EQ(two.out, first.substr(0, first.size() - 1) + "\n" +
                             second.substr(0, second.find('\xFF')) + "\n")
          << two.err;
      const std::string third = answer("merged", 2, "user:\nc" + open, "--temperature " + t);
      const std::string said = talk("\n\nc\n", "--base base --load adapter --chat " + t).out;
      EXPECT_EQ(said, third.substr(0, third.find('\xFF')) + "\n");
      EXPECT_NE(said, talk("\n\nc\n", "--base base --chat " + t).out);
    }
  }
}

// proof/questions.py asks. Learned answers are right, and that of the held-out chat is not.
TEST_F(Finetune, Chapter35ScoresItsAnswers) {
  write("chats.jsonl", some_chats(12));
  save_base("--model tiny");
  train("36_finetune", kChats + "--steps 120 --lr 0.002 --save tuned");
  const Program script("36_finetune",
                       {"sh", "-c", "python3 -B " LADDER_QUESTIONS " --tasks chats.jsonl"});
  write("tasks.jsonl", run(script, {}).out);
  for (const std::string load : {"base", "tuned"}) {
    const auto lines = lines_of("35_evaluate", "--tasks tasks.jsonl --load " + load);
    ASSERT_EQ(lines.size(), 12);
    for (size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(lines[i]["scores"]["exact_match"], load == "tuned" && i < 11 ? 1 : 0) << load << i;
  }
}

TEST_F(Finetune, RefusesWhatIsNoConversation) {
  save_base("--model tiny");
  for (const auto& [typed, flags, says] :
       {std::tuple{"a\n", "--chat 0", "--chat needs --base"},
        {"a\n", "--base base --chat 0 --save x", "--save with --chat, which takes no step"},
        {"a\n", "--base base --chat 0 --lora-rank 2", "--lora-rank without --load with --chat"},
        {"a\n", "--base base --chat 1e-9", "--chat must be 0, or from 0.001 to"},
        {"a\n", "--base base --chat -1", "--chat must be 0, or from 0.001 to"},
        {"a\n", "--base base --chat nan", "--chat must be 0, or from 0.001 to"},
        {"a\n", "--base base --chat 0 --ranks 2", "--ranks must be 1, not 2"},
        {"\xFF\n", "--base base --chat 0", "a text with the byte FF; legal is UTF-8"},
        {"\n1234567890123456789012345678901234567890123456\n", "--base base --chat 0",
         "line 2: the conversation has 64 tokens, and the window 64; legal are 63"}})
    refused(talk(typed, flags), says);
}

TEST_F(Finetune, RefusesWhatDoesNotFit) {
  save_base("--model tiny");
  const auto refuses = [&](const std::string& flags, const std::string& says) {
    refused(run("36_finetune", small_run(flags)), says);
  };
  refuses("--model tiny --vocab 300 --data chats.jsonl", "--model tiny: a vocabulary of 300");
  refuses(kChats + "--layers 2", "--layers with --base, which says what the model is");
  refuses("--model tiny --data chats.jsonl --lora-rank 2", "--lora-rank needs --base");
  refuses(kChats + "--lora-alpha 2", "--lora-alpha needs --lora-rank");
  refuses(kChats + "--lora-rank -1", "--lora-rank must be from 0 to");
  refuses(kChats + "--end-of-text 10", "--end-of-text with chats");
  refuses(kChats + "--seq-len 12", "of its 60 chats have a target within 13 tokens");
  refuses("--model tiny --base gone --data chats.jsonl", "--base gone: no such directory");
  train("36_finetune", kChats + "--lora-rank 4 --steps 1 --save adapter");
  refuses(kChats + "--lora-rank 2 --load adapter",
          "r 4, lora_alpha 4, use_rslora false; legal are");
  refuses("--model tiny --base adapter --data chats.jsonl", "--base adapter: ");
  train("36_finetune", kChats + "--steps 1 --save whole");
  refuses(kChats + "--load whole --save-merged merged", "no adapter is there to merge");
}

}  // namespace
}  // namespace ladder::test
