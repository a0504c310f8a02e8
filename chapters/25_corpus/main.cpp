// 25_corpus: from raw documents to the ones worth training on. It trains no model: it filters
// documents, and removes duplicates and held-out text.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chapters/25_corpus/components.h"
#include "chapters/25_corpus/exact.h"
#include "chapters/25_corpus/fates.h"
#include "chapters/25_corpus/held_out.h"
#include "chapters/25_corpus/judge.h"
#include "chapters/25_corpus/minhash.h"
#include "chapters/25_corpus/output.h"
#include "chapters/25_corpus/share.h"
#include "common/comm/run_ranks.h"
#include "common/data/line_files.h"
#include "common/data/sorted_records.h"
#include "common/error.h"
#include "common/own_place.h"
#include "common/run/command_line.h"
#include "common/run/run_main.h"

namespace ladder {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

struct FileOptions {
  std::vector<std::string> data;
  std::string out, removed;
  int64_t memory_limit = int64_t{1} << 30;
  int threads = 1, ranks = 1;

  void add_to(CommandLine& line) {
    line.group("Files");
    line.add("--data", data, "files of documents: a line of each is an object with \"text\"");
    line.add("--out", out, "a file of documents that stay");
    line.add("--removed", removed, "a file of documents that go, with the reason");
    line.add("--memory-limit", memory_limit,
             "bytes of records of a rank, of texts that are compared, and of a line",
             {.bytes = true});
    line.add("--threads", threads, "threads of a rank");
    line.add("--ranks", ranks, "ranks that split the documents; under mpirun the processes");
  }
  /// @throws UserError
  void check() const {
    if (data.empty()) throw UserError("--data is missing: the files to read");
    if (out.empty()) throw UserError("--out is missing: what to write");
    if (memory_limit < 1 << 16)
      throw UserError("--memory-limit must be at least 64KB, not {} bytes", memory_limit);
    require_range("--threads", threads, 1, 1024);
    require_range("--ranks", ranks, 1, 1024);
  }
};

struct Options {
  FileOptions files;
  SieveOptions sieve;
  HeldOutOptions held_out;
};

// ---- 2. layout ----------------------------------------------------------------------------------

/// Parts of files are dealt to ranks, and to the threads of each. Rank 0 writes.
Share share_of(const Comm& comm, const Options& o) {
  return {.rank = comm.rank(), .ranks = comm.size(), .threads = o.files.threads};
}

// ---- 3. memory ----------------------------------------------------------------------------------

/// Bytes of the records of all ranks: a key for each text, and one for each band.
/// @param with_shingles documents of enough words
int64_t predicted_bytes(const Options& o, int64_t documents, int64_t with_shingles) {
  const int64_t texts = o.sieve.dedup == Dedup::None ? 0 : documents,
                bands = o.sieve.dedup == Dedup::Near ? with_shingles * o.sieve.minhash.bands : 0;
  return (texts + bands) * static_cast<int64_t>(sizeof(KeyRecord));
}

/// The records whose keys belong to this rank: those of whole texts, and those of bands.
struct Records {
  SortedRecords<KeyRecord> texts, bands;
};
Records make_records(const Options& o) {
  const auto directory = std::filesystem::absolute(o.files.out).parent_path();
  const int64_t limit = o.files.memory_limit;
  if (o.sieve.dedup != Dedup::Near) return {{limit, directory}, {0, directory}};
  const int64_t text = limit / (1 + o.sieve.minhash.bands);
  return {{text, directory}, {limit - text, directory}};
}

// ---- 4. data ------------------------------------------------------------------------------------

/// What every rank reads.
struct Inputs {
  LineFiles files;
  std::optional<HeldOut> held_out;
  HashFunctions functions;

  explicit Inputs(const Options& o)
      : files(o.files.data, "--data", o.files.memory_limit),
        functions(o.sieve.minhash.bands * o.sieve.minhash.rows) {
    if (!o.held_out.files.empty()) held_out.emplace(o.held_out, o.files.memory_limit);
  }
};

NamedPaths paths_read(const Options& o) {
  NamedPaths all;
  for (const std::string& path : o.held_out.files) all.emplace_back("--held-out", path);
  for (const std::string& path : o.files.data) all.emplace_back("--data", path);
  return all;
}

/// What rank 0 writes.
struct Outputs {
  std::optional<LineWriter> kept, removed;

  Outputs(const FileOptions& o, NamedPaths taken) {
    take_place({"--out", o.out}, taken);
    require_own_place({"--removed", o.removed}, taken);
    kept.emplace(o.out, "--out");
    if (!o.removed.empty()) removed.emplace(o.removed, "--removed");
  }
  /// A full disk leaves both old files as they were. A crash between the two renames leaves one.
  void commit() {
    kept->sync();
    if (removed) removed->sync();
    kept->commit();
    if (removed) removed->commit();
  }
};

// ---- 5. step ------------------------------------------------------------------------------------

/// Reads and judges all documents. @return on rank 0 all lines, elsewhere none
std::vector<LineEntry> judge_all(Comm& comm, const Options& o, Inputs& in, Records& records) {
  std::vector<Judge> judges;
  std::vector<Judged> found;
  for (int i = 0; i < o.files.threads; ++i) {
    judges.emplace_back(o.sieve, in.functions, in.held_out ? &*in.held_out : nullptr);
    found.emplace_back(comm.size());
  }
  std::vector<LineEntry> lines;
  const auto work = [&](size_t thread, const LinePart& part) {
    for (size_t i = 0; i < part.lines.size(); ++i) {
      const uint64_t ordinal = static_cast<uint64_t>(part.ordinal) + i;
      const std::string wrong = part.lines[i].too_long
                                    ? "is longer than --memory-limit"
                                    : judges[thread].judge(part.line(i), ordinal, found[thread]);
      if (!wrong.empty()) throw UserError("{}: {}", in.files.name_of(part, i), wrong);
    }
  };
  for_own_parts(in.files, share_of(comm, o), work, [&] {
    for (Judged& some : found) {
      records.texts.add(exchange(comm, some.texts));
      records.bands.add(exchange(comm, some.bands));
      for (const LineEntry& line : gather(comm, std::exchange(some.lines, {}))) {
        if (lines.size() <= line.ordinal) lines.resize(line.ordinal + 1);
        lines[line.ordinal] = line;
      }
    }
  });
  return lines;
}

/// Of documents with one text one stays. Rank 0 reads texts of equal hashes again, and joins those
/// that are equal.
void remove_exact(Comm& comm, const Options& o, LineFiles& files, Records& records,
                  std::vector<LineEntry>& lines, Components& components) {
  std::vector<uint64_t> own;  // groups one after the other, each behind its size
  for_equal_keys(records.texts, [&](const std::vector<uint64_t>& equal) {
    own.push_back(equal.size());
    own.insert(own.end(), equal.begin(), equal.end());
  });
  const std::vector<uint64_t> all = gather(comm, std::move(own));
  std::vector<std::vector<uint64_t>> groups;
  for (auto at = all.begin(); at != all.end(); at += static_cast<int64_t>(*at) + 1)
    groups.emplace_back(at + 1, at + 1 + static_cast<int64_t>(*at));
  compare_texts(files, o.files.threads, o.sieve.filter, lines, groups, o.files.memory_limit,
                [&](uint64_t gone, uint64_t survivor) {
                  lines[gone].fate = Fate::Exact;
                  components.join(gone, survivor);
                });
}

/// Of each component one document stays: the one whose text has the least hash.
/// @return on rank 0 the survivor of each line
std::vector<uint64_t> remove_near(Comm& comm, Records& records, std::vector<LineEntry>& lines,
                                  Components& components) {
  std::vector<NearPair> own;
  for_equal_keys(records.bands, [&](const std::vector<uint64_t>& equal) {
    for (size_t i = 1; i < equal.size(); ++i) own.push_back({equal[0], equal[i]});
  });
  for (const auto& [a, b] : gather(comm, std::move(own))) components.join(a, b);
  const auto is_there = [&](uint64_t i) { return lines[i].fate == Fate::Kept; };
  const std::vector<uint64_t> of =
      survivors(components, lines.size(), is_there,
                [&](uint64_t a, uint64_t b) { return lines[a].hash < lines[b].hash; });
  for (uint64_t i = 0; i < lines.size(); ++i)
    if (is_there(i) && of[i] != i) lines[i].fate = Fate::Near;
  return of;
}

// ---- 6. report ----------------------------------------------------------------------------------

bool has_survivor(const LineEntry& line) {
  return line.fate == Fate::Exact || line.fate == Fate::Near;
}

/// Writes what stays and what goes. @return the hash of the lines that stay
std::string write(LineFiles& files, std::span<const RuleSet> filter,
                  std::span<const LineEntry> lines, std::span<const uint64_t> survivors,
                  Outputs& out) {
  SetHash kept;
  std::set<uint64_t> stay;
  for (uint64_t i = 0; out.removed && i < lines.size(); ++i)
    if (has_survivor(lines[i])) stay.insert(survivors[i]);
  const std::map<uint64_t, std::string> names = names_of_survivors(files, stay);
  files.rewind();
  for (LinePart part; files.next(part);) {
    for (size_t i = 0; i < part.lines.size(); ++i) {
      const uint64_t ordinal = static_cast<uint64_t>(part.ordinal) + i;
      const LineEntry& line = lines[ordinal];
      if (line.fate == Fate::Blank) continue;
      if (line.fate == Fate::Kept) {
        const std::string changed =
            line.is_changed ? with_changed_text(filter, part.line(i)) : std::string();
        const std::string_view left = changed.empty() ? part.line(i) : changed;
        out.kept->write(left);
        kept.add(left);
      } else if (out.removed) {
        const std::string_view object = part.line(i);
        out.removed->write(fmt::format(
            R"({{"removed_by":"{}",{}{})", name_of(line.fate),
            has_survivor(line) ? fmt::format(R"("survivor":{},)", names.at(survivors[ordinal]))
                               : "",
            object.substr(object.find('{') + 1)));
      }
    }
  }
  return kept.hex();
}

void run_rank(Comm& comm, const Options& o) {
  Inputs in(o);
  std::optional<Outputs> out;
  if (comm.rank() == 0) out.emplace(o.files, paths_read(o));
  Records records = make_records(o);
  std::vector<LineEntry> lines = judge_all(comm, o, in, records);
  std::array<int64_t, 2> bytes{
      (records.texts.size() + records.bands.size()) * static_cast<int64_t>(sizeof(KeyRecord)),
      records.texts.spilled_bytes() + records.bands.spilled_bytes()};
  comm.all_reduce({.ptr = bytes.data(), .dtype = Dtype::I64, .shape = {2}});
  const int64_t met = in.held_out ? in.held_out->met(comm) : 0;
  const int64_t documents = std::ranges::count(lines, Fate::Kept, &LineEntry::fate);
  const int64_t with_shingles = std::ranges::count(lines, true, &LineEntry::has_shingles);
  Components components(lines.size());
  remove_exact(comm, o, in.files, records, lines, components);
  const std::vector<uint64_t> survivors = remove_near(comm, records, lines, components);
  if (comm.rank() != 0) return;

  const std::string kept = write(in.files, o.sieve.filter, lines, survivors, *out);
  out->commit();
  print_funnel(lines, o.sieve.filter);
  if (in.held_out) fmt::print("{}\n", in.held_out->summary(met));
  fmt::print("records: {} bytes predicted, {} measured, {} of them in files\n",
             predicted_bytes(o, documents, with_shingles), bytes[0], bytes[1]);
  fmt::print("kept set {}\n", kept);
}

void run(int argc, char** argv) {
  Options o;
  CommandLine("25_corpus: documents that are worth training on, out of raw ones")
      .read(argc, argv, o.files, o.sieve, o.held_out);
  run_ranks(o.files.ranks, [&](Comm& comm) { run_rank(comm, o); });
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] { ladder::run(argc, argv); });
}
