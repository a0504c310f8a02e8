#include "common/json_document.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/json.h"

namespace ladder {
namespace {

using nlohmann::json;

/// Gives a line to the parser byte by byte, and so knows how far the parser has read.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** come;

  reference operator*() const { return *at; }
  Cursor& operator++() {
    *come = ++at;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at == other.at; }
};

/// The parser calls these functions for each value in turn. If one returns false, the parser ends.
class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(std::string_view line, JsonDocument& document) : line_(line), document_(document) {}
  const char* come = nullptr;  ///< the end of what the parser has read of the line
  std::string wrong;           ///< what the line should have been

  bool has_text() const { return fields_[0].met; }

  bool key(std::string& name) override {
    field_ = nullptr;
    if (depth_ != 1) return true;
    for (Field& field : fields_)
      if (name == field.name) field_ = &field;
    if (!field_) return true;
    if (field_ == &fields_[0]) document_.begin = line_.find('"', offset());
    if (std::exchange(field_->met, true)) return fail(fmt::format("\"{}\" twice", name));
    return true;
  }
  bool string(std::string& value) override {
    if (field_ && depth_ == 1) field_->value.swap(value);
    if (field_ == &fields_[0] && depth_ == 1) document_.end = offset();
    return in_object("");
  }
  bool number_integer(int64_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return number(std::to_string(value)); }
  /// A whole number that is too long for an integer comes here, too.
  bool number_float(double, const std::string& shown) override {
    const bool is_whole = shown.find_first_not_of("-0123456789") == std::string::npos;
    return is_whole ? number(shown) : in_object("a number");
  }
  bool boolean(bool) override { return in_object("a Boolean"); }
  bool null() override { return in_object(field_ == &fields_[0] ? "null" : ""); }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(size_t) override {
    return (depth_ == 0 || in_object("an object")) && go_deeper();
  }
  bool start_array(size_t) override { return in_object("an array") && go_deeper(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(size_t at, const std::string&, const json::exception&) override {
    return fail(fmt::format("malformed JSON or invalid UTF-8 at byte {}", at));
  }

 private:
  struct Field {
    const char* name;
    std::string& value;
    bool met = false;
  };

  size_t offset() const { return static_cast<size_t>(come - line_.data()); }
  bool fail(std::string why) {
    wrong = std::move(why);
    return false;
  }
  bool go_deeper() {
    if (++depth_ > kMaxJsonDepth)
      return fail(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  /// @param kind of a value that none of the fields may have; empty: this one may
  bool in_object(const char* kind) {
    if (depth_ == 0) return fail("no object");
    if (depth_ == 1 && field_ && *kind)
      return fail(fmt::format("\"{}\" is {}", field_->name, kind));
    return true;
  }
  bool number(std::string digits) {
    if (field_ != &fields_[1]) return in_object("a number");
    if (depth_ == 1) field_->value = std::move(digits);
    return true;
  }

  std::string_view line_;
  JsonDocument& document_;
  Field fields_[3] = {{"text", document_.text}, {"id", document_.id}, {"source", document_.source}};
  Field* field_ = nullptr;  ///< the field whose value comes next
  int depth_ = 0;
};

}  // namespace

std::string read_document(std::string_view line, JsonDocument& document) {
  document.text.clear();
  document.id.clear();
  document.source.clear();
  Reader reader(line, document);
  const Cursor begin{line.data(), &reader.come}, end{line.data() + line.size(), nullptr};
  if (!json::sax_parse(begin, end, &reader)) return reader.wrong;
  return reader.has_text() ? "" : "no \"text\"";
}

}  // namespace ladder
