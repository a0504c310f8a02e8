// Any bytes as the file of --config: refused in a line, or flags.
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/run/run_main.h"
#include "tests/fuzz/bytes_as_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ladder::BytesAsFile file(data, size);
  const std::string path = file.path();
  const char* const words[] = {"fuzz", "--config", path.c_str()};
  try {
    ladder::RunOptions options;
    ladder::CommandLine line("fuzz");
    options.add_to(line);
    line.parse(3, words);
  } catch (const ladder::UserError&) {
  } catch (const ladder::HelpPrinted&) {
  }
  return 0;
}
