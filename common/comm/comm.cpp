#include "common/comm/comm.h"

#include "kernels/narrow.h"

namespace ladder {
namespace {

/// Sets a value until the end of a scope.
template <class T>
class Within {
 public:
  Within(T& place, T value) : place_(place), before_(place) { place = value; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() { place_ = before_; }

 private:
  T& place_;
  T before_;
};

/// Two operations as one.
class Both : public Pending::Work {
 public:
  Both(Pending first, Pending second) : first_(std::move(first)), second_(std::move(second)) {}
  void wait() override {
    first_.wait();
    second_.wait();
  }

 private:
  Pending first_, second_;
};

}  // namespace

// The inside of a library cannot be counted. So wire bytes of the backend's own collectives are
// computed: what a rank sends in the algorithm that moves fewest bytes. For b bytes on N ranks,
// where a rank's own chunk has c: reduce-scatter b - c, all-gather (N - 1) c, all-reduce both.

void Comm::all_reduce(Tensor data, Combine combine) {
  check_combines(data, combine);
  settle(data);
  const Call call{Operation::AllReduce, data, data, combine};
  collective(call, [&] { do_all_reduce(data, combine); });
  const int64_t chunk = Chunks{data.size(), size_}[rank_].size() * size_of(data.dtype);
  statistics_[Operation::AllReduce].wire_bytes += data.bytes() - chunk + (size_ - 1) * chunk;
}

void Comm::reduce_scatter(Tensor out, Tensor inp) {
  check_chunks(inp, out);
  check_combines(inp, Combine::Sum);
  settle(out, inp);
  const Call call{.operation = Operation::ReduceScatter, .payload = inp, .result = out};
  collective(call, [&] { do_reduce_scatter(out, inp); });
  statistics_[Operation::ReduceScatter].wire_bytes += inp.bytes() - out.bytes();
}

void Comm::all_gather(Tensor out, Tensor inp) {
  check_chunks(out, inp);
  settle(out, inp);
  const Call call{.operation = Operation::AllGather, .payload = out, .result = out};
  collective(call, [&] { do_all_gather(out, inp); });
  statistics_[Operation::AllGather].wire_bytes += (size_ - 1) * inp.bytes();
}

void Comm::broadcast(Tensor data, int root) {
  check_place(data);
  settle(data);
  CHECK(root >= 0 && root < size_, "broadcast from rank {} of {}", root, size_);
  const Call call{.operation = Operation::Broadcast, .payload = data, .result = data, .root = root};
  collective(call, [&] { do_broadcast(data, root); });
  // However a tensor is passed on, N - 1 copies travel. They are counted at the root.
  if (rank_ == root) statistics_[Operation::Broadcast].wire_bytes += (size_ - 1) * data.bytes();
}

void Comm::all_to_all(Tensor out, Tensor inp) {
  check_chunks(out, flat(inp).first(inp.size() / size_));
  check_chunks(inp, flat(out).first(out.size() / size_));
  CHECK(out.size() == 0 || out.ptr != inp.ptr, "all_to_all in place");
  settle(out, inp);
  const Call call{.operation = Operation::AllToAll, .payload = inp, .result = out};
  collective(call, [&] { do_all_to_all(out, inp); });
  statistics_[Operation::AllToAll].wire_bytes += inp.bytes() / size_ * (size_ - 1);
}

void Comm::barrier() {
  const Call call{.operation = Operation::Barrier, .payload = {.shape = {0}}};
  collective(call, [&] { do_barrier(); });
}

std::unique_ptr<Comm> Comm::split(int color, int key) {
  CHECK(color >= 0, "color {}", color);
  CHECK(!current_, "split inside of {}", to_string(*current_));
  std::unique_ptr<Comm> group = do_split(color, key);
  group->attach(device());
  return group;
}

Pending Comm::isend(Tensor data, int to) {
  const Call call = message(Operation::Send, data, to);
  const Within<const Call*> within(current_, current_ ? current_ : &call);
  return do_isend(data, to);
}

Pending Comm::irecv(Tensor data, int from) {
  const Call call = message(Operation::Recv, data, from);
  const Within<const Call*> within(current_, current_ ? current_ : &call);
  return do_irecv(data, from);
}

Pending Comm::iexchange(Tensor out, int to, Tensor inp, int from) {
  Pending receiving = inp && inp.size() > 0 ? irecv(inp, from) : Pending();
  Pending sending = out && out.size() > 0 ? isend(out, to) : Pending();
  return Pending(std::make_unique<Both>(std::move(receiving), std::move(sending)));
}

void Comm::collective(const Call& call, const std::function<void()>& messages) {
  CHECK(!current_, "{} inside of {}", to_string(call), to_string(*current_));
  OperationCount& count = statistics_[call.operation];
  ++count.calls;
  count.payload_bytes += call.payload.bytes();
  const Within<const Call*> within(current_, &call);
  perform(call, messages);
}

Call Comm::message(Operation operation, Tensor data, int peer) {
  check_place(data);
  check_peer(peer);
  settle(data);
  const int64_t wire_bytes = operation == Operation::Send ? data.bytes() : 0;
  if (!current_) {
    statistics_[operation] += {.calls = 1, .payload_bytes = data.bytes(), .wire_bytes = wire_bytes};
  } else {
    statistics_[current_->operation].wire_bytes += wire_bytes;
  }
  return {.operation = operation, .payload = data, .root = peer};
}

void Comm::check_place(const Tensor& data) const {
  CHECK(data.place != Place::Device || device(), "no device is attached to this {} communicator",
        kind());
}

// This holds for reading and for writing: peers read what kernels have not written yet, and what
// arrives would overwrite what kernels have not read yet. The stand-in on the CPU cannot show that
// a wait is missing, because it runs kernels when they are called. LateDevice in the tests shows
// it.
void Comm::settle(const Tensor& data, const Tensor& other) const {
  if (data.place != Place::Host || other.place != Place::Host) device_.synchronize();
}

void Comm::check_peer(int peer) const {
  CHECK(peer >= 0 && peer < size_, "a message between ranks {} and {} of {}", rank_, peer, size_);
  CHECK(peer != rank_, "a message to itself");
}

void Comm::check_chunks(const Tensor& whole, const Tensor& chunk) const {
  check_place(whole);
  check_place(chunk);
  CHECK(whole.dtype == chunk.dtype && whole.size() == chunk.size() * size_,
        "{} {} is not {} equal chunks of {} {}", to_string(whole.shape), dtype_text(whole.dtype),
        size_, to_string(chunk.shape), dtype_text(chunk.dtype));
}

void Comm::check_combines(const Tensor& data, Combine combine) const {
  check_place(data);
  const bool sums = !is_fp8(data.dtype) && data.dtype != Dtype::U8;
  CHECK(sums || (combine == Combine::Max && data.dtype == Dtype::U8), "{} are not {}",
        dtype_text(data.dtype), combine == Combine::Sum ? "summed" : "compared");
}

std::vector<std::string> gather_text(Comm& comm, std::string text) {
  int64_t own = std::ssize(text);
  std::vector<int64_t> sizes(static_cast<size_t>(comm.size()));
  // As bytes, like the texts: no planted fault is meant for them (faulty_comm.h).
  constexpr int64_t each = sizeof(own);
  comm.all_gather({.ptr = sizes.data(), .dtype = Dtype::U8, .shape = {each * comm.size()}},
                  {.ptr = &own, .dtype = Dtype::U8, .shape = {each}});
  const auto tensor = [](std::string& bytes) {
    return Tensor{.ptr = bytes.data(), .dtype = Dtype::U8, .shape = {std::ssize(bytes)}};
  };
  if (comm.rank() != 0) {
    comm.exchange(tensor(text), 0, {}, 0);
    return {};
  }
  std::vector<std::string> all{std::move(text)};
  for (int rank = 1; rank < comm.size(); ++rank) {
    all.emplace_back(static_cast<size_t>(sizes[static_cast<size_t>(rank)]), '\0');
    comm.exchange({}, 0, tensor(all.back()), rank);
  }
  return all;
}

}  // namespace ladder
