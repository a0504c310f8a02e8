#include "common/save/own_runs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>

#include "common/hf/layout.h"
#include "common/hf/safetensors.h"
#include "common/model/shards.h"
#include "common/save/directory.h"
#include "common/save/file_order.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

std::span<const std::byte> bytes_of(Tensor run) {
  return {static_cast<const std::byte*>(run.ptr), static_cast<size_t>(run.bytes())};
}

/// Where a tensor lies in a file.
struct FilePlace {
  int64_t first, elements;
};
FilePlace place_of(const SafetensorsPlan& plan, const std::string& name) {
  const auto entry = std::ranges::find(plan.entries, name, &SafetensorsPlan::Entry::name);
  return {plan.begins[static_cast<size_t>(entry - plan.entries.begin())], entry->shape.size()};
}

/// Calls use() for neighboring runs as one, if they are neighbors in memory, too.
class Joined {
 public:
  explicit Joined(const UseRun& use) : use_(use) {}

  void add(size_t file, int64_t at, Tensor run) {
    if (run.size() == 0) return;
    const bool goes_on = run_ && file == file_ && at == at_ + run_.bytes() &&
                         run.ptr == static_cast<std::byte*>(run_.ptr) + run_.bytes();
    if (goes_on) {
      run_.shape.dims[0] += run.size();
      return;
    }
    end();
    file_ = file;
    at_ = at;
    run_ = run;
  }
  void end() {
    if (run_) use_(file_, at_, run_);
    run_ = {};
  }

 private:
  const UseRun& use_;
  size_t file_ = 0;
  int64_t at_ = 0;
  Tensor run_;
};

/// Calls use() for all that this rank writes of the weights.
/// @param weights as FileOrder::stage() leaves them
void for_own_weights(const TrainingState& state, const FileOrder& order, const Flat& weights,
                     std::span<const PlannedFile> files, const UseRun& use) {
  for (const ParamSpec& spec : state.layout.specs())
    if (order.writes(spec)) {
      const Range turned = is_transposed(spec, state.gpt) ? order.range(spec) : Range{};
      for_weight_runs(files, spec, state.layout.tensor(weights, spec), turned, order.whole(), use);
    }
}

/// The same for the optimizer's state.
void for_own_states(const Ctx& ctx, const TrainingState& state, const FileOrder& order,
                    std::span<const PlannedFile> files, const UseRun& use) {
  for (const auto& [name, tensor] : state.optim) {
    const FilePlace place = place_of(files.back().plan, name);
    const HostCopy host = HostCopy::of(ctx, tensor);
    const Tensor flat = host.tensor().view({tensor.size()});
    Joined joined(use);
    const auto add = [&](int64_t begin, Tensor run) {
      joined.add(files.size() - 1, place.first + begin * size_of(run.dtype), run);
    };
    if (is_flat(state.layout, tensor)) {
      for_flat_runs(state.layout, state.layout.own(flat), [&](int64_t begin, Tensor run) {
        if (order.writes(begin, place.elements)) add(begin, run);
      });
    } else {
      const Range part = order.part(flat.size());
      add(part.begin, flat.slice(part.begin, part.size()));
    }
    joined.end();
  }
}

/// Runs on their way to rank 0, several in a message: where each belongs, and its bytes.
class Packets {
 public:
  struct Head {
    int64_t file, at, bytes;
  };
  explicit Packets(Comm& comm) : comm_(comm) {}

  void add(int64_t file, int64_t at, std::span<const std::byte> run) {
    const Head head{file, at, std::ssize(run)};
    const auto* bytes = reinterpret_cast<const std::byte*>(&head);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof head);
    buffer_.insert(buffer_.end(), run.begin(), run.end());
    if (std::ssize(buffer_) >= kMessage) send();
  }
  /// Sends what is left, and that it was all.
  void end() {
    if (!buffer_.empty()) send();
    send();
  }
  /// On rank 0: calls use(file, at, run) for all that rank `from` sends.
  template <class Use>
  void receive(int from, Use&& use) {
    for (;;) {
      int64_t size = 0;
      comm_.recv(tensor(&size, sizeof size), from);
      if (size == 0) return;
      buffer_.resize(static_cast<size_t>(size));
      comm_.recv(tensor(buffer_.data(), size), from);
      for (std::span<const std::byte> rest = buffer_; !rest.empty();) {
        Head head;
        std::memcpy(&head, rest.data(), sizeof head);
        rest = rest.subspan(sizeof head);
        use(static_cast<size_t>(head.file), head.at, rest.first(static_cast<size_t>(head.bytes)));
        rest = rest.subspan(static_cast<size_t>(head.bytes));
      }
    }
  }

 private:
  static constexpr int64_t kMessage = 1 << 23;
  // As bytes: no planted fault is meant for them (common/comm/faulty_comm.h).
  static Tensor tensor(void* at, int64_t bytes) {
    return {.ptr = at, .dtype = Dtype::U8, .shape = {bytes}};
  }
  void send() {
    int64_t size = std::ssize(buffer_);
    comm_.send(tensor(&size, sizeof size), 0);
    if (size > 0) comm_.send(tensor(buffer_.data(), size), 0);
    buffer_.clear();
  }

  Comm& comm_;
  std::vector<std::byte> buffer_;
};

/// How long this thread has had a processor.
int64_t busy_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// The files as far as this rank writes in them. After an error it writes nothing more.
class OpenFiles {
 public:
  OpenFiles(std::span<const PlannedFile> files, std::string generation)
      : plan_(files), generation_(std::move(generation)), open_(files.size()) {}

  void write(size_t file, int64_t at, std::span<const std::byte> run) {
    written_.attempt([&] {
      if (!open_[file]) {
        make_generation(generation_);
        open_[file].emplace(generation_ + "/" + plan_[file].name, plan_[file].plan.bytes);
      }
      open_[file]->write(at, run);
      ++written_.writes;
      written_.bytes += std::ssize(run);
    });
  }
  Written finish() {
    const int64_t written_ns = now_ns();
    for (std::optional<SharedFile>& file : open_) {
      if (file) written_.attempt([&] { file->sync(); });
      written_.sums.push_back(file ? file->sum() : RunsSum{});
    }
    written_.write_ns = written_ns - begin_ns_;
    written_.sync_ns = now_ns() - written_ns;
    written_.busy_ns = busy_ns() - busy_begin_ns_;
    return std::move(written_);
  }
  /// Notes a tensor that is not finite.
  void look_at(size_t file, int64_t at, Tensor run) {
    if (is_finite(run)) return;
    const SafetensorsPlan& plan = plan_[file].plan;
    const auto next = std::ranges::upper_bound(plan.begins, at);
    const std::array here{static_cast<int64_t>(file), next - plan.begins.begin() - 1};
    if (!written_.not_finite.empty() && here >= std::array{written_.bad_file, written_.bad_entry})
      return;
    written_.not_finite = plan.entries[static_cast<size_t>(here[1])].name;
    written_.bad_file = here[0];
    written_.bad_entry = here[1];
  }

 private:
  std::span<const PlannedFile> plan_;
  std::string generation_;
  std::vector<std::optional<SharedFile>> open_;
  int64_t begin_ns_ = now_ns(), busy_begin_ns_ = busy_ns();
  Written written_;
};

}  // namespace

bool is_flat(const ParamLayout& layout, const Tensor& tensor) {
  return ranks_of(layout) > 1 && tensor.shape.rank == 1;
}

Shape whole_shape(const ParamLayout& layout, const Tensor& tensor) {
  return is_flat(layout, tensor) ? Shape{whole_elements(layout, layout.own(tensor))} : tensor.shape;
}

std::vector<PlannedFile> plan_files(const TrainingState& state, int64_t most) {
  std::vector<PlannedFile> files = plan_weights(state.layout, most);
  std::vector<SafetensorsPlan::Entry> entries;
  for (const auto& [name, tensor] : state.optim)
    entries.push_back({name, tensor.dtype, whole_shape(state.layout, tensor)});
  std::ranges::stable_sort(entries, std::greater<>(),
                           [](const auto& entry) { return size_of(entry.dtype); });
  files.push_back({kOptimizerFile, SafetensorsPlan(std::move(entries))});
  return files;
}

std::vector<uint64_t> covers_of(const TrainingState& state, std::span<const PlannedFile> files) {
  std::vector<uint64_t> covers;
  for (const PlannedFile& file : files) covers.push_back(cover_of(0, file.plan.bytes));
  // In a flat tensor, nobody has the padding between parameters.
  const ParamLayout whole = state.layout.whole();
  for (const auto& [name, tensor] : state.optim) {
    if (!is_flat(state.layout, tensor)) continue;
    const auto [first, n] = place_of(files.back().plan, name);
    const int64_t bytes = size_of(tensor.dtype), each = div_exact(whole.size(), n);
    int64_t end = first;
    for (const ParamSpec& spec : whole.specs()) {
      const int64_t begin = first + spec.offset / each * bytes;
      covers.back() -= cover_of(end, begin);
      end = begin + ceil_div(spec.live(), each) * bytes;
    }
    covers.back() -= cover_of(end, first + n * bytes);
  }
  return covers;
}

Written write_own_runs(const Ctx& ctx, const TrainingState& state,
                       std::span<const PlannedFile> files, const std::string& generation,
                       Comm* gather) {
  const bool first = !state.comm || state.comm->rank() == 0;
  OpenFiles open(files, generation);
  std::optional<Packets> packets;
  if (gather) packets.emplace(*gather);
  for (size_t file = 0; file < files.size() && first; ++file)
    open.write(file, 0, std::as_bytes(std::span(files[file].plan.head)));
  const FileOrder order(state);
  std::unique_ptr<float[]> room;
  Flat weights = state.params;
  if (!state.is_staged) {
    room.reset(new float[static_cast<size_t>(weights.tensor.size())]);
    weights = weights.copied_to({.ptr = room.get(), .shape = weights.tensor.shape});
    order.stage(ctx, weights.tensor);
  }
  const UseRun use = [&](size_t file, int64_t at, Tensor run) {
    open.look_at(file, at, run);
    if (packets && !first)
      packets->add(static_cast<int64_t>(file), at, bytes_of(run));
    else
      open.write(file, at, bytes_of(run));
  };
  // A file lets one rank in at a time: they do not all begin with the same.
  const bool states_first = state.comm && state.comm->rank() % 2 == 1;
  if (states_first) for_own_states(ctx, state, order, files, use);
  for_own_weights(state, order, weights, files, use);
  if (!states_first) for_own_states(ctx, state, order, files, use);
  if (packets && !first) packets->end();
  for (int rank = 1; packets && first && rank < gather->size(); ++rank)
    packets->receive(rank, [&](size_t file, int64_t at, std::span<const std::byte> run) {
      open.write(file, at, run);
    });
  return open.finish();
}

}  // namespace ladder
