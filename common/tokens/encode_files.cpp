#include "common/tokens/encode_files.h"

#include <algorithm>
#include <ctime>

#include "common/error.h"

namespace ladder {
namespace {

/// The tokens of a part, and where documents end among these tokens.
struct Encoded {
  std::vector<uint32_t> ids;
  std::vector<size_t> ends;
};

void encode_part(Encoder& encoder, const Tokenizer& tokenizer, const TextPart& part,
                 bool allow_special, Encoded& out) {
  const std::string_view text = part.text;
  out.ids.clear();
  out.ends.clear();
  size_t begin = 0;
  for (const size_t end : part.ends) {
    encode_text(encoder, tokenizer, text.substr(begin, end - begin), allow_special, out.ids);
    if (tokenizer.end_of_text) out.ids.push_back(*tokenizer.end_of_text);
    out.ends.push_back(out.ids.size());
    begin = end;
  }
  encode_text(encoder, tokenizer, text.substr(begin), allow_special, out.ids);
}

void write(TokenSink& writer, const Encoded& encoded) {
  const std::span<const uint32_t> ids = encoded.ids;
  size_t begin = 0;
  for (const size_t end : encoded.ends) {
    writer.write(ids.subspan(begin, end - begin));
    writer.end_document();
    begin = end;
  }
  writer.write(ids.subspan(begin));
}

}  // namespace

void encode_text(Encoder& encoder, const Tokenizer& tokenizer, std::string_view text,
                 bool allow_special, std::vector<uint32_t>& out) {
  struct Next {
    std::string_view special;
    uint32_t id;
    size_t at;  // where it stands next; npos: nowhere
  };
  std::vector<Next> next;
  if (allow_special)
    for (const auto& [special, id] : tokenizer.special)
      next.push_back({special, id, text.find(special)});
  // The special token that comes first; if two begin at the same place, the longer one.
  const auto comes_first = [](const Next& a, const Next& b) {
    return a.at != b.at ? a.at < b.at : a.special.size() > b.special.size();
  };
  size_t begin = 0;
  while (!next.empty()) {
    const Next first = *std::ranges::min_element(next, comes_first);
    if (first.at == std::string_view::npos) break;
    encoder.encode(text.substr(begin, first.at - begin), out);
    out.push_back(first.id);
    begin = first.at + first.special.size();
    for (Next& n : next)
      if (n.at < begin) n.at = text.find(n.special, begin);
  }
  encoder.encode(text.substr(begin), out);
}

EncodeReport encode_files(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                          const EncodeOptions& options, TokenSink& writer) {
  std::vector<std::string> whole;
  if (options.allow_special)
    for (const auto& [text, id] : tokenizer.special) whole.push_back(text);
  Documents documents(paths, options.utf8, whole);
  std::vector<Encoder> encoders{Encoder(tokenizer)};
  const std::clock_t start = std::clock();
  while (std::ssize(encoders) < options.threads) encoders.push_back(Encoder(encoders.front()));
  std::vector<Encoded> encoded(encoders.size());
  for_parts(
      documents, options.threads,
      [&](size_t i, const TextPart& part) {
        encode_part(encoders[i], tokenizer, part, options.allow_special, encoded[i]);
      },
      [&](size_t parts) {
        for (size_t i = 0; i < parts; ++i) write(writer, encoded[i]);
      });
  EncodeReport report;
  report.bytes = documents.bytes();
  report.processor_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  for (const Encoder& encoder : encoders) {
    report.cache.pieces += encoder.stats().pieces;
    report.cache.hits += encoder.stats().hits;
  }
  if (report.bytes == 0) throw UserError("--data {}: holds no text", paths.front());
  return report;
}

}  // namespace ladder
