#include "common/json.h"

#include <set>
#include <vector>

#include "common/error.h"
#include "common/input_file.h"

namespace ladder {
namespace {

using nlohmann::json;

/// Sees what the parser meets, in time to stop the parser.
class Watch {
 public:
  void see(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxJsonDepth)
        throw UserError("JSON nested deeper than {} levels", kMaxJsonDepth);
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second)
      throw UserError("the key {} stands there twice", shown(parsed));
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open now
};

}  // namespace

json parse_json(std::string_view text) {
  Watch watch;
  try {
    return json::parse(text, [&](int depth, json::parse_event_t event, const json& parsed) {
      watch.see(depth, event, parsed);
      return true;
    });
  } catch (const json::parse_error& e) {
    throw UserError("malformed JSON at byte {} of {}", e.byte, text.size());
  } catch (const json::exception&) {
    throw UserError("malformed JSON: a number that is out of range");
  }
}

json read_json(const std::string& path) {
  const std::string text = read_small_file(path, kMaxJsonFile);
  try {
    return parse_json(text);
  } catch (const UserError& e) {
    throw UserError("{}: {}", path, e.what());
  }
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string shown(const json& value) {
  // Characters outside of ASCII are escaped; bytes that are no characters are replaced.
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace ladder
