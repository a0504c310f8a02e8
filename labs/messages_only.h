// A communicator for checks that look at each message of a rank: it has no collectives of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/comm/comm.h"
#include "kernels/check.h"

namespace ladder::lab {

/// Passes messages on to another communicator, and refuses collectives and split().
class MessagesOnly : public Comm {
 public:
  /// @param allowed what a student may call, as the exception says it
  explicit MessagesOnly(Comm& comm, const char* allowed = "messages only")
      : Comm(comm.rank(), comm.size()), comm_(comm), allowed_(allowed) {}
  std::string_view kind() const override { return "messages only"; }
  void abandon() noexcept override { comm_.abandon(); }

 protected:
  Pending do_isend(Tensor data, int to) override { return comm_.isend(data, to); }
  Pending do_irecv(Tensor data, int from) override { return comm_.irecv(data, from); }
  std::unique_ptr<Comm> do_split(int, int) override { refuse(); }

  Comm& comm_;

 private:
  const char* allowed_;

  [[noreturn]] void refuse() {
    throw CheckError(std::string("a collective of Comm or split() was called; this lab takes ") +
                     allowed_);
  }
  void do_all_reduce(Tensor, Combine) override { refuse(); }
  void do_reduce_scatter(Tensor, Tensor) override { refuse(); }
  void do_all_gather(Tensor, Tensor) override { refuse(); }
  void do_broadcast(Tensor, int) override { refuse(); }
  void do_all_to_all(Tensor, Tensor) override { refuse(); }
  void do_barrier() override { refuse(); }
};

/// Takes messages alone, and counts those that go to another node.
class CountingComm : public MessagesOnly {
 public:
  /// @param per_node ranks of a node
  CountingComm(Comm& comm, int per_node) : MessagesOnly(comm), per_node_(per_node) {}

  int64_t bytes() const { return bytes_; }
  int64_t messages() const { return messages_; }

 private:
  Pending do_isend(Tensor data, int to) override {
    if (to / per_node_ != rank() / per_node_ && data.size() > 0) {
      bytes_ += data.bytes();
      ++messages_;
    }
    return MessagesOnly::do_isend(data, to);
  }

  int per_node_;
  int64_t bytes_ = 0, messages_ = 0;
};

}  // namespace ladder::lab
