// Any bytes as --data, in each form that --tokens names: refused in a line, or drawn from.
#include "common/data/text.h"
#include "common/error.h"
#include "tests/fuzz/bytes_as_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kSeqLen = 4, kVocab = 300;
  const ladder::BytesAsFile file(data, size);
  const std::string path = file.path();
  for (const char* name : ladder::kNames<ladder::TokenKind>) try {
      const auto tokens = *ladder::named<ladder::TokenKind>(name);
      const auto format = ladder::find_format(ladder::InputFile(path), tokens, kVocab);
      const ladder::Text text(
          {.path = path, .format = format, .seq_len = kSeqLen, .vocab = kVocab});
      ladder::Arena arena;
      const ladder::Batch batch = ladder::alloc_batch(arena, 2, kSeqLen);
      text.draw(batch, /*seed=*/1, /*step=*/0);
      text.draw_validation(batch.slice(0, 1), 0);
    } catch (const ladder::UserError&) {
    }
  return 0;
}
