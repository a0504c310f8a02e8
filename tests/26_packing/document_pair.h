// X.bin and X.idx, the pair of files that hold documents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tokens/token_file.h"

namespace ladder {

inline void write_documents(const std::string& bin,
                            const std::vector<std::vector<uint32_t>>& documents) {
  TokenWriter writer(bin, TokenFile::Megatron, TokenKind::Uint16);
  for (const auto& tokens : documents) {
    writer.write(tokens);
    writer.end_document();
  }
  writer.commit();
}

/// Documents of 2 to 40 tokens.
inline std::vector<std::vector<uint32_t>> some_documents(uint32_t count) {
  std::vector<std::vector<uint32_t>> all(count);
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t k = 0; k < 2 + (11 * i + count) % 39; ++k) all[i].push_back((i * k + i) % 256);
  return all;
}

}  // namespace ladder
