// Chapters 07 to 10, 18 and 30 train on any number of ranks as 06 does on one. So a test is written
// once, and runs on each of them.
#pragma once

#include <string>
#include <vector>

namespace ladder::test {

inline const std::vector<std::string> kDataParallel = {"07_ddp",   "08_zero1", "09_zero2",
                                                       "10_zero3", "30_hsdp",  "18_offload"};

/// In tables a word stands for several chapters: "ranks" for those above, "06_checkpointing+" for
/// all that descend from that chapter, and for itself.
bool is_several(const std::string& word);
/// Those that it stands for; of another word the chapter that it is.
std::vector<std::string> chapters_of(const std::string& word);

}  // namespace ladder::test
