// Which bytes of a checkpoint a rank writes. The files are those of chapter 10, byte for byte:
// their layout is known before the first byte. So each rank puts its own numbers where they belong.
//
// A byte range is neighboring bytes of a file. Hugging Face's format for GPT-2 stores linear layers
// transposed, so a rank that has some rows of a matrix has a short byte range of each row of the
// file.
#pragma once

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "common/checksum.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/random.h"
#include "common/save/checkpoint.h"
#include "common/save/hf_layout.h"
#include "common/save/shards.h"

namespace ladder {

/// What tells whether a file is complete and right: two sums over its byte ranges. Those of all
/// ranks are added.
struct RangeSum {
  uint32_t crc = 0;    ///< the XOR of what the ranges add to the CRC-32C of the file
  uint64_t cover = 0;  ///< the sum of their cover_of()

  RangeSum& operator+=(const RangeSum& other) {
    crc ^= other.crc;
    cover += other.cover;
    return *this;
  }
};

/// random(begin) - random(end), for a random function of places in a file. In a sum over ranges a
/// place drops out if as many ranges end there as begin. So the sum is cover_of(0, size) only if
/// the ranges cover each byte once. (A checksum does not see a range that nobody has written: the
/// file has zeros there.)
inline uint64_t cover_of(int64_t begin, int64_t end) {
  const Random random(0, "places in a file");
  const auto at = [&](int64_t place) { return random.bits(static_cast<uint64_t>(place))[0]; };
  return at(begin) - at(end);
}

/// A file that several ranks write together, each its own byte ranges. Neighboring ranges that come
/// one after the other are written as one.
class SharedFile {
 public:
  /// Creates the file in its full size, unless another rank has.
  /// @throws UserError if the disk refuses, as all functions here do
  SharedFile(const std::string& path, const SafetensorsPlan& plan) : path_(path), plan_(plan) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) fail();
    fd_.reset(new int(fd));
    if (::ftruncate(fd, plan.bytes) != 0) fail();
  }

  /// Adds flat `numbers`, whose first byte is byte `at` of the file.
  void add(int64_t at, Tensor numbers) {
    constexpr size_t kMost = 1 << 20;
    if (at != at_ + std::ssize(buffer_) || buffer_.size() >= kMost) write();
    if (buffer_.empty()) at_ = at;
    if (not_finite_.empty() && !is_finite(numbers)) not_finite_ = plan_.entry_at(at).name;
    const auto* bytes = static_cast<const std::byte*>(numbers.host());
    buffer_.insert(buffer_.end(), bytes, bytes + numbers.bytes());
  }
  /// Returns when all that was added here is on the disk.
  void finish() {
    write();
    if (::fsync(*fd_) != 0) fail();
  }

  const SafetensorsPlan& plan() const { return plan_; }
  RangeSum sum() const { return sum_; }
  int64_t writes() const { return writes_; }
  int64_t bytes() const { return bytes_; }
  /// The first tensor that was seen with a NaN or an infinity; empty: none.
  const std::string& not_finite() const { return not_finite_; }

 private:
  void write() {
    if (buffer_.empty()) return;
    std::span<const std::byte> rest = buffer_;
    const int64_t behind = plan_.bytes - at_ - std::ssize(rest);
    CHECK(at_ >= 0 && behind >= 0, "{} bytes at {} of {}", rest.size(), at_, plan_.bytes);
    sum_ += {crc32c_of_range(rest, behind), cover_of(at_, at_ + std::ssize(rest))};
    ++writes_;
    bytes_ += std::ssize(rest);
    while (!rest.empty()) {
      const ssize_t n = ::pwrite(*fd_, rest.data(), rest.size(), at_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      at_ += n;
      rest = rest.subspan(static_cast<size_t>(n));
    }
    buffer_.clear();
  }
  [[noreturn]] void fail() const {
    throw UserError("checkpoint {}: cannot be written: {}", path_,
                    std::generic_category().message(errno));
  }

  std::string path_;
  const SafetensorsPlan& plan_;
  Descriptor fd_;
  std::vector<std::byte> buffer_;
  int64_t at_ = 0;  ///< where the buffer belongs
  RangeSum sum_;
  int64_t writes_ = 0, bytes_ = 0;
  std::string not_finite_;
};

/// Neighboring numbers of a row, and their place in the file.
struct RowPiece {
  HfRow to;
  int64_t k;  ///< which of the row's columns is the first
  std::span<const float> from;
};

/// What a rank has of a parameter, by row of the file.
/// @param part its elements [spec.part.begin, spec.part.end)
inline std::vector<RowPiece> pieces_of(const ParamSpec& spec, const float* part,
                                       const GptConfig& config) {
  std::vector<RowPiece> pieces;
  const int64_t K = spec.stride;
  spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
    for (const int64_t end = there + n; there < end;) {
      const int64_t count = std::min(end - there, K - there % K);
      pieces.push_back(
          {hf_row(spec, config, there / K), there % K, {part + here, static_cast<size_t>(count)}});
      here += count;
      there += count;
    }
  });
  std::ranges::sort(pieces, {}, [](const RowPiece& piece) {
    return std::tuple(piece.to.tensor, piece.to.row, piece.k);
  });
  return pieces;
}

/// Adds pieces of a matrix that the file stores transposed, from byte `begin` of the file on.
/// @param rows of our matrix, which are columns of the file's; @param K columns of ours
inline void add_transposed(SharedFile& file, int64_t begin, int64_t rows,
                           std::span<const RowPiece> pieces, int64_t K) {
  std::vector<float> range;
  int64_t at = 0;
  const auto add = [&] {
    if (range.empty()) return;
    file.add(begin + at * 4, {.ptr = range.data(), .shape = {std::ssize(range)}});
    range.clear();
  };
  for (int64_t k = 0; k < K; ++k)
    for (const RowPiece& piece : pieces) {
      if (k < piece.k || k >= piece.k + std::ssize(piece.from)) continue;
      const int64_t place = k * rows + piece.to.row;
      if (place != at + std::ssize(range)) add();
      if (range.empty()) at = place;
      range.push_back(piece.from[static_cast<size_t>(k - piece.k)]);
    }
  add();
}

/// Adds what this rank has of the weights. @param state its tensors are in host memory
inline void add_weights(SharedFile& file, const TrainingState& state) {
  const GptConfig& config = state.layout.config();
  const ParamLayout whole = state.layout.whole();
  for (const ParamSpec& spec : state.layout.specs()) {
    if (spec.is_copy) continue;  // of a tied head, whose owner writes it
    const ParamSpec& all = whole.spec(spec.name);
    std::vector<int64_t> begins;
    for (const HfTensor& hf : hf_tensors(all, config))
      begins.push_back(file.plan().begin_of(hf.name));
    const auto* part = state.layout.tensor(state.params, spec).data<float>();
    const std::vector<RowPiece> pieces = pieces_of(spec, part, config);
    if (is_transposed(spec, config)) {
      add_transposed(file, begins[0], all.rows, pieces, spec.stride);
      continue;
    }
    for (const auto& [to, k, from] : pieces)
      file.add(begins[to.tensor] + (to.row * spec.stride + k) * 4,
               {.ptr = const_cast<float*>(from.data()), .shape = {std::ssize(from)}});
  }
}

/// Adds zeros between the parameters of a flat state that begins at byte `begin`: nobody has them.
/// @param each how many parameters share one number of the state: 1, but 8-bit states have a scale
/// for a block of parameters (chapter 32); @param bytes of one number
inline void add_padding(SharedFile& file, int64_t begin, const ParamLayout& whole, int64_t each,
                        int64_t bytes) {
  std::vector<std::byte> zeros;
  int64_t done = 0;
  const auto add_to = [&](int64_t end) {
    zeros.resize(static_cast<size_t>((end - done) * bytes));
    file.add(begin + done * bytes,
             {.ptr = zeros.data(), .dtype = Dtype::U8, .shape = {std::ssize(zeros)}});
  };
  for (const ParamSpec& spec : whole.specs()) {
    add_to(spec.offset / each);
    done = spec.offset / each + ceil_div(spec.live(), each);
  }
  add_to(whole.size() / each);
}

/// Adds what this rank has of the optimizer's state.
inline void add_states(SharedFile& file, const TrainingState& state) {
  const bool first = !state.comm || state.comm->rank() == 0;
  const ParamLayout whole = state.layout.whole();
  for (const auto& [name, tensor] : state.optim) {
    const int64_t begin = file.plan().begin_of(name), bytes = size_of(tensor.dtype);
    if (!is_flat(state.layout, tensor)) {
      if (first) file.add(begin, tensor.view({tensor.size()}));
      continue;
    }
    for_flat_runs(state.layout, state.layout.own(tensor),
                  [&](int64_t at, Tensor run) { file.add(begin + at * bytes, run); });
    const int64_t elements = whole_elements(state.layout, state.layout.own(tensor));
    if (first) add_padding(file, begin, whole, div_exact(whole.size(), elements), bytes);
  }
}

}  // namespace ladder
