// Any bytes as the config.json of somebody's weights: refused in a line, or that of this model.
#include <string_view>

#include "common/error.h"
#include "common/hf/config.h"
#include "common/hf/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto theirs = ladder::parse_json({reinterpret_cast<const char*>(data), size});
    ladder::check_hf_config(theirs, ladder::preset("nano"));
  } catch (const ladder::UserError&) {
  }
  return 0;
}
