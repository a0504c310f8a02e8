// Any bytes as a safetensors file: refused in a line, or read.
#include "common/hf/safetensors.h"

#include "common/error.h"
#include "tests/fuzz/bytes_as_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ladder::BytesAsFile file(data, size);
  try {
    const ladder::SafetensorsReader reader(file.path());
    reader.sum();
  } catch (const ladder::UserError&) {
  }
  return 0;
}
