// SortedRecords: sorts more records than memory can hold. When memory is full, the records in it
// are sorted and written to a file as a run. At the end all runs are merged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <queue>
#include <span>
#include <type_traits>
#include <vector>

#include "common/input_file.h"

namespace ladder {

/// A file without a name. It vanishes when it is closed, or when the program dies.
class NamelessFile {
 public:
  /// @throws UserError if no file can be made in `directory`, that of --out
  explicit NamelessFile(const std::filesystem::path& directory);
  /// Appends. @throws UserError if the disk takes no more
  void write(std::span<const std::byte> bytes);
  /// @throws UserError if the disk fails
  void read(int64_t begin, std::span<std::byte> out) const;

 private:
  [[noreturn]] void fail(const char* verb) const;

  std::filesystem::path directory_;
  FilePointer file_;
};

template <class Record>
class SortedRecords {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  /// @param limit     how many bytes of records memory may hold
  /// @param directory where the file of runs is made, if one is needed
  SortedRecords(int64_t limit, std::filesystem::path directory)
      : capacity_(std::max<size_t>(1024, static_cast<size_t>(limit) / sizeof(Record))),
        directory_(std::move(directory)) {}

  void add(std::span<const Record> records) {
    for (const Record& record : records) {
      if (records_.size() == capacity_) spill();
      records_.push_back(record);
    }
  }
  int64_t spilled_bytes() const { return static_cast<int64_t>(spilled_ * sizeof(Record)); }
  int64_t size() const { return static_cast<int64_t>(spilled_ + records_.size()); }

  /// Calls f(record) for all records in ascending order, and then forgets them.
  template <class F>
  void take(F&& f) {
    std::ranges::sort(records_);
    if (runs_.empty()) {
      for (const Record& record : records_) f(record);
    } else {
      if (!records_.empty()) spill();
      merge(f);
    }
    records_ = {};
    runs_.clear();
  }

 private:
  /// A run in the file. Merging keeps the next few of its records in memory.
  struct Run {
    int64_t at, end;  ///< which bytes of the file have not been read
    std::vector<Record> some = {};
    size_t next = 0;  ///< which record of `some` comes next
  };

  void spill() {
    std::ranges::sort(records_);
    if (!file_) file_ = std::make_unique<NamelessFile>(directory_);
    file_->write(std::as_bytes(std::span<const Record>(records_)));
    const auto bytes = static_cast<int64_t>(records_.size() * sizeof(Record));
    runs_.push_back({spilled_bytes(), spilled_bytes() + bytes});
    spilled_ += records_.size();
    records_.clear();
  }
  bool refill(Run& run, size_t most) {
    run.next = 0;
    run.some.resize(std::min(most, static_cast<size_t>(run.end - run.at) / sizeof(Record)));
    if (run.some.empty()) return false;
    file_->read(run.at, std::as_writable_bytes(std::span(run.some)));
    run.at += static_cast<int64_t>(run.some.size() * sizeof(Record));
    return true;
  }
  template <class F>
  void merge(F&& f) {
    records_ = {};  // its memory is for the runs
    const size_t each = std::max<size_t>(64, capacity_ / runs_.size());
    const auto later = [&](size_t a, size_t b) {
      return runs_[b].some[runs_[b].next] < runs_[a].some[runs_[a].next];
    };
    std::priority_queue<size_t, std::vector<size_t>, decltype(later)> waiting(later);
    for (size_t i = 0; i < runs_.size(); ++i)
      if (refill(runs_[i], each)) waiting.push(i);
    while (!waiting.empty()) {
      const size_t i = waiting.top();
      waiting.pop();
      Run& run = runs_[i];
      f(run.some[run.next]);
      if (++run.next < run.some.size() || refill(run, each)) waiting.push(i);
    }
  }

  size_t capacity_, spilled_ = 0;
  std::filesystem::path directory_;
  std::vector<Record> records_;
  std::vector<Run> runs_;
  std::unique_ptr<NamelessFile> file_;
};

}  // namespace ladder
