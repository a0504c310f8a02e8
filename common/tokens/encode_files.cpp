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

void encode_part(Encoder& encoder, uint32_t end_of_text, const TextPart& part, Encoded& out) {
  const std::string_view text = part.text;
  out.ids.clear();
  out.ends.clear();
  size_t begin = 0;
  for (const size_t end : part.ends) {
    encoder.encode(text.substr(begin, end - begin), out.ids);
    out.ids.push_back(end_of_text);
    out.ends.push_back(out.ids.size());
    begin = end;
  }
  encoder.encode(text.substr(begin), out.ids);
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

EncodeReport encode_files(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                          const EncodeOptions& options, TokenSink& writer) {
  if (!tokenizer.end_of_text)
    throw UserError(
        "--tokenizer: no file says which token ends a text; --end-of-text ID of ch24_tokenizer "
        "does");
  std::vector<std::string> whole;
  for (const auto& [text, token] : tokenizer.added) whole.push_back(text);
  Documents documents(paths, options.utf8, whole);
  // A thread takes memory even where there is no part for it.
  const auto threads =
      static_cast<int>(std::min<int64_t>(options.threads, 1 + (documents.file_bytes() >> 20)));
  std::vector<Encoder> encoders{Encoder(tokenizer, options.allow_special)};
  const std::clock_t start = std::clock();
  while (std::ssize(encoders) < threads) encoders.push_back(Encoder(encoders.front()));
  std::vector<Encoded> encoded(encoders.size());
  for_parts(
      documents, threads,
      [&](size_t i, const TextPart& part) {
        encode_part(encoders[i], *tokenizer.end_of_text, part, encoded[i]);
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
