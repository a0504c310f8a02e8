// Runs of 37_rl for tests: a base that is right now and then, tasks, and pairs.
#pragma once

#include "tests/common/same_trace.h"

namespace ladder::test {

inline const std::string k37 = "37_rl";

class Rl : public SameTrace {
 protected:
  Rl() {
    std::string chats, tasks, pairs;
    // Chats give one of two answers by chance, and tasks want one of the two: the base is right
    // now and then, so a group has answers of both kinds and the gradient is not zero.
    for (int i = 0; i < 60; ++i) {
      const int a = i % 7, b = i * i % 9;
      chats += fmt::format(
          "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{}+{}\"}}, {{\"role\": "
          "\"assistant\", \"content\": \"{}\"}}]}}\n",
          a, b, i * 7 % 11 % 2 == 0 ? "7" : "46");
      tasks += fmt::format("{{\"prompt\": \"{}+{}\", \"answer\": \"7\"}}\n", a, b);
      pairs +=
          fmt::format("{{\"prompt\": \"{}+{}\", \"chosen\": \"7\", \"rejected\": \"46\"}}\n", a, b);
    }
    write("chats.jsonl", chats);
    write("tasks.jsonl", tasks);
    write("pairs.jsonl", pairs);
  }
  void save_base(const std::string& model) const {
    std::filesystem::remove_all(path("base"));
    train("36_finetune", model +
                             " --layers 2 --data chats.jsonl --batch 8 --steps 40 --lr 0.005 "
                             "--save base");
  }
  Trace trained(const std::string& flags, Range range = {0, kSteps}) const {
    return run_of(kGrpo + flags, range);
  }
  /// A number of each step of the last run.
  std::vector<double> told(const std::string& name) const {
    const auto report = nlohmann::json::parse(read("report.json"));
    std::vector<double> all;
    for (const auto& step : report.at("extra").at("rl")) all.push_back(step.at(name));
    EXPECT_FALSE(all.empty());
    return all;
  }
  Trace run_of(const std::string& flags, Range range = {0, kSteps}) const {
    return trace(k37, flags + " --report report.json", range);
  }

  const std::string kModel = "--model tiny --base base ",
                    kGrpo = kModel + "--data tasks.jsonl --batch 4 --group 4 --max-tokens 8 ",
                    kDpo = kModel + "--data pairs.jsonl --batch 4 ";
};

}  // namespace ladder::test
