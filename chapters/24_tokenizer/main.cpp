// 24_tokenizer: byte-level BPE. It trains no model: it trains a tokenizer, encodes text with any
// tokenizer of this kind, and decodes.

#include <bit>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "chapters/24_tokenizer/trainer.h"
#include "chapters/24_tokenizer/vocabulary.h"
#include "common/error.h"
#include "common/output_file.h"
#include "common/own_place.h"
#include "common/run/command_line.h"
#include "common/run/run_main.h"
#include "common/tokens/documents.h"
#include "common/tokens/encode_files.h"
#include "common/tokens/token_file.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

/// What all commands share.
struct Files {
  std::vector<std::string> data;
  std::string out;
  int threads = 1;

  void add_to(CommandLine& line) {
    line.group("Files");
    line.add("--data", data, "one file or several");
    line.add("--out", out, "what is written");
    line.add("--threads", threads, "threads");
  }
  /// @throws UserError
  void check() const {
    if (data.empty()) throw UserError("--data is missing: the files to read");
    if (out.empty()) throw UserError("--out is missing: what to write");
    if (threads < 1 || threads > 1024)
      throw UserError("--threads must be from 1 to 1024, not {}", threads);
  }
};

/// For train and encode, which read text.
struct TextOptions {
  Utf8 utf8 = Utf8::Refuse;

  void add_to(CommandLine& line) {
    line.add("--utf8", utf8, "bytes that are no valid UTF-8: refuse, or take bytes as they are");
  }
};

struct TrainOptions {
  int64_t vocab = 8192, show = 10;
  Split split = Split::Gpt2;
  Ties ties = Ties::Hf;

  void add_to(CommandLine& line) {
    line.group("24_tokenizer train");
    line.add("--vocab", vocab, "tokens in all: 256 bytes, merges, and <|endoftext|>, the last one");
    line.add("--split", split, "whose pattern cuts the text into pieces");
    line.add("--ties", ties, "which of equally frequent pairs is merged first, as whose trainer");
    line.add("--show", show, "merges that are printed");
  }
  /// @throws UserError
  void check() const {
    if (vocab < 257 || vocab > 1 << 24)
      throw UserError("--vocab must be from 257, the bytes and <|endoftext|>, to {}, not {}",
                      1 << 24, vocab);
    if (show < 0) throw UserError("--show must be at least 0, not {}", show);
  }
};

/// A tokenizer, for encode and decode.
struct TokenizerOptions {
  std::string path, split;
  std::optional<int64_t> end_of_text;
  TokenKind tokens = TokenKind::Auto;

  void add_to(CommandLine& line) {
    line.group("24_tokenizer encode and decode");
    line.add("--tokenizer", path, "a directory or file: tokenizer.json, *.tiktoken");
    line.add("--split", split, "for a file of ranks, which has no pattern: gpt2, llama3 or cl100k");
    line.add("--end-of-text", end_of_text, "the id of the token that ends a text",
             {.shown_default = "what the tokenizer's files say"});
    line.add("--tokens", tokens, "numbers of the token file; auto: the narrowest that suffices",
             {.legal = {"auto", "uint16", "uint32"}});
  }
  Tokenizer read() const {
    if (path.empty()) throw UserError("--tokenizer is missing: what ch24_tokenizer train wrote");
    if (!split.empty() && !named<Split>(split))
      throw UserError("--split {}; legal are {}", split, fmt::join(kNames<Split>, ", "));
    return read_tokenizer(path, {.split = named<Split>(split), .end_of_text = end_of_text});
  }
};

struct EncodeFlags {
  TokenFile format = TokenFile::Raw;
  bool allow_special = false;

  void add_to(CommandLine& line) {
    line.add("--format", format, "of the token file; megatron writes X.idx beside X.bin");
    line.add("--allow-special", allow_special,
             "text that spells a special token becomes that token");
  }
};

// ---- 2. layout ----------------------------------------------------------------------------------

/// The bytes are the first ids, then the merges in their order, and the end of text is the last.
Tokenizer finished(const Vocabulary& vocabulary, Split split) {
  Tokenizer made;
  made.split = split;
  made.tokens = vocabulary.tokens();
  made.merges = vocabulary.merges();
  made.end_of_text = static_cast<uint32_t>(made.tokens.size());
  made.added[kEndOfText] = {.id = *made.end_of_text};
  made.tokens.emplace_back(kEndOfText);
  return made;
}

// ---- 3. memory ----------------------------------------------------------------------------------

/// What the program took at most, whatever the size of its files.
void print_memory() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  fmt::print("{} MiB of memory at most\n", use.ru_maxrss / 1024);
}

// ---- 4. data ------------------------------------------------------------------------------------

/// Bytes of the text, each as often as its word occurs.
int64_t text_bytes(const std::vector<WordCount>& words) {
  int64_t bytes = 0;
  for (const auto& [word, count] : words) bytes += std::ssize(word) * count;
  return bytes;
}

std::vector<WordCount> read_words(const Files& files, const TextOptions& text, Split split) {
  Documents documents(files.data, text.utf8);
  std::vector<WordCount> words = count_words(documents, split, files.threads);
  if (words.empty()) throw UserError("--data {}: holds no text", files.data.front());
  return words;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Prints the merges as they happen, and bytes a token each time that the vocabulary has doubled.
class Progress {
 public:
  Progress(const std::vector<WordCount>& words, Vocabulary& vocabulary, int64_t show)
      : bytes_(text_bytes(words)), tokens_(bytes_) {
    fmt::print("{} bytes, {} different pieces\n", bytes_, words.size());
    vocabulary.watch = [this, &vocabulary, show](const PairCount& pair, int64_t fewer) {
      tokens_ -= fewer;
      if (std::ssize(vocabulary.merges()) <= show) print_merge(vocabulary, pair);
      const size_t size = vocabulary.tokens().size();
      if (size >= 512 && std::has_single_bit(size)) print_size(size);
    };
  }
  void print_size(size_t size) const {
    fmt::print("{:>7} tokens  {:.3f} bytes a token\n", size,
               static_cast<double>(bytes_) / static_cast<double>(tokens_));
  }

 private:
  static void print_merge(const Vocabulary& vocabulary, const PairCount& pair) {
    const auto& tokens = vocabulary.tokens();
    const std::string left = to_alphabet(tokens[pair.left]),
                      right = to_alphabet(tokens[pair.right]);
    fmt::print("{:>7}  {} {}  {} times\n", vocabulary.merges().back().result, left, right,
               pair.count);
  }
  int64_t bytes_, tokens_;
};

void print_encoded(const EncodeReport& report, const TokenWriter& writer) {
  const auto& [pieces, hits] = report.cache;
  const double bytes = static_cast<double>(report.bytes);
  fmt::print("{} bytes, {} documents, {} tokens, {:.3f} bytes a token\n", report.bytes,
             writer.documents(), writer.tokens(), bytes / static_cast<double>(writer.tokens()));
  fmt::print("{} pieces, {:.2f}% of them in the cache\n", pieces,
             100.0 * static_cast<double>(hits) / static_cast<double>(pieces));
  fmt::print("{:.3f} s of processor time, {:.0f} MB/s a thread\n", report.processor_seconds,
             bytes / report.processor_seconds / 1e6);
}

void train(const Files& files, const TextOptions& text, const TrainOptions& o) {
  check_tokenizer_place(files.out, named_paths("--data", files.data));
  const std::clock_t start = std::clock();
  const std::vector<WordCount> words = read_words(files, text, o.split);
  Vocabulary vocabulary(o.ties, o.vocab - 1);
  const Progress progress(words, vocabulary, o.show);
  FastTrainer(words, vocabulary).train();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  progress.print_size(vocabulary.tokens().size());
  if (!vocabulary.is_full())
    fmt::print("each piece is one token: there is nothing left to merge\n");
  fmt::print("{} merges, {} comparisons of pairs, {:.3f} s of processor time\n",
             vocabulary.merges().size(), vocabulary.compared(), seconds);
  write_tokenizer(files.out, finished(vocabulary, o.split));
}

/// @throws UserError if a file that is written is what encode and decode read
void check_out(const Files& files, const TokenizerOptions& o, const std::string& out) {
  NamedPaths taken = {{"--tokenizer", o.path}};
  for (const std::string& path : files.data) taken.emplace_back("--data", path);
  require_own_place({"--out", out}, taken);
}

void encode(const Files& files, const TextOptions& text, const TokenizerOptions& o,
            const EncodeFlags& flags) {
  const Tokenizer tokenizer = o.read();
  check_out(files, o, files.out);
  if (flags.format == TokenFile::Megatron) check_out(files, o, index_path(files.out));
  TokenWriter writer(files.out, flags.format, token_kind(o.tokens, tokenizer));
  const EncodeReport report = encode_files(
      tokenizer, files.data,
      {.utf8 = text.utf8, .allow_special = flags.allow_special, .threads = files.threads}, writer);
  writer.commit();
  print_encoded(report, writer);
}

void decode(const Files& files, const TokenizerOptions& o) {
  const Tokenizer tokenizer = o.read();
  check_out(files, o, files.out);
  const TokenKind kind = token_kind(o.tokens, tokenizer);
  OutputFile out(files.out, "--out");
  for (const std::string& path : files.data)
    for_tokens(path, kind, tokenizer.vocab(), [&](std::span<const uint32_t> ids) {
      out.write(decode(tokenizer, ids, /*keep_special=*/false));
    });
  out.commit();
}

// ---- 6. report ----------------------------------------------------------------------------------

constexpr const char* kCommands = "train, encode, decode";

void run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  Files files;
  TextOptions text;
  const auto read = [&](const char* what, auto&... options) {
    CommandLine(fmt::format("24_tokenizer {}: {}", command, what))
        .read(argc - 1, argv + 1, files, options...);
  };
  TrainOptions training;
  TokenizerOptions tokenizer;
  EncodeFlags encoding;
  if (command == "train") {
    read("learns merges from text, and writes a tokenizer to the directory --out", training, text);
    train(files, text, training);
  } else if (command == "encode") {
    read("text to a file of tokens", tokenizer, encoding, text);
    encode(files, text, tokenizer, encoding);
  } else if (command == "decode") {
    read("a file of tokens to text", tokenizer);
    decode(files, tokenizer);
  } else if (command == "--help") {
    fmt::print("ch24_tokenizer COMMAND --help, where COMMAND is one of {}\n", kCommands);
    return;
  } else {
    throw UserError("the first word is {}; legal are {}", command, kCommands);
  }
  print_memory();
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] { ladder::run(argc, argv); });
}
