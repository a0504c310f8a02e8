#include "common/run/model_in.h"

#include <filesystem>

#include "common/error.h"
#include "common/hf/file_names.h"
#include "common/json.h"
#include "common/save/directory.h"
#include "common/save/hf_config.h"
#include "common/save/manifest.h"

namespace ladder {

GptConfig model_in(const char* flag, const std::string& load, std::optional<int64_t> seq_len) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(load))
    throw UserError("{} {}: no such directory; legal is one that --save wrote, or one with {}",
                    flag, load, kConfigFile);
  const std::string file = (checkpoint_in(load).value_or(load) / kConfigFile).string();
  try {
    const nlohmann::json theirs = read_json(file);
    const std::optional<Manifest> saved = Manifest::find(load);
    GptConfig config =
        saved
            ? Manifest::config_of(saved->model, theirs.value("max_position_embeddings", int64_t{0}))
            : config_of_hf(theirs);
    if (saved && config.position == Position::Learned) config.seq_len = config.positions;
    config.seq_len = seq_len.value_or(config.seq_len);
    if (config.seq_len == 0)
      throw UserError("its files do not say how long a text can be; legal is --seq-len");
    config.check();
    return config;
  } catch (const nlohmann::json::exception&) {
    throw UserError("{} {}: {} lacks a size of the model", flag, load, file);
  } catch (const UserError& e) {
    throw UserError("{} {}: {}", flag, load, e.what());
  }
}

}  // namespace ladder
