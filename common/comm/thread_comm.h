// ThreadComm: ranks that are threads of one process. They need no launcher, and run on a laptop and
// under ThreadSanitizer.
//
// A message is a rendezvous: the side that comes second copies from one tensor to the other, so
// nothing is buffered. In a collective, all ranks meet, then each reads what it needs from the
// tensors of the others, then all meet again. A rank that must wait blocks on a condition variable.
//
// Tensors of a device are copied on the device, because the ranks of one process share its memory.
// Only the sums of all_reduce and reduce_scatter are computed in host memory.
//
// Ranks that disagree are always noticed, not only in Debug builds: it costs one comparison.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/comm.h"
#include "common/comm/elements.h"
#include "common/comm/thread_world.h"

namespace ladder {

/// One side of a message, until the other side has come and the data is copied.
struct Post {
  int rank;  ///< in the world
  Call call;
  Tensor data;
  Device* device;      ///< where data may lie; null: on the host only
  bool taken = false;  ///< the other side is copying now
  bool done = false;
};
/// Posts of one side, from one rank to another. A deque, because messages keep their order.
using Posts = std::deque<std::shared_ptr<Post>>;

/// What the ranks of one ThreadComm share: their meetings, and messages in progress. Ranks are
/// those of the group, unless "of the world" is said.
class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  /// @param members their ranks of the world, by rank of the group
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  ThreadWorld& world() { return *world_; }

  /// What a rank does between a meeting and the next one.
  enum class Then : uint8_t { Read, Leave };
  /// Returns when all ranks have come. Fails the run if they are in different calls.
  /// @param mine what peers may read after the meeting, if all of them Read
  void meet(int rank, const Call& call, Tensor mine, Then then);
  /// What `rank` offered. Valid between two meetings
  Tensor offered(int rank) const { return offers_[rank]; }
  /// `rank` fails while it reads, so its peers must not wait for it. Returns when they have read
  /// what it offered.
  void leave(int rank);

  /// One side of a message. Copies if the other side has come; otherwise waits for it.
  Pending post_send(int from, int to, const Call& call, Tensor data, Device* device);
  Pending post_recv(int from, int to, const Call& call, Tensor data, Device* device);

  /// The new group of `rank`, and the rank that it has there.
  std::pair<std::shared_ptr<ThreadGroup>, int> split(int rank, int color, int key);

 private:
  using Pairs = std::map<std::pair<int, int>, Posts>;  ///< by (from, to)
  using Lock = ThreadWorld::Lock;

  static std::shared_ptr<Post> first_of(Posts& posts);
  Pending wait_in(Posts& posts, const std::shared_ptr<Post>& mine);
  void copy(Lock& lock, const Post& from, const Post& to, Post& waiting, Device* device);
  void check_calls();
  void stop_reading(Lock& lock, int rank);
  std::shared_ptr<ThreadGroup> child(int color, const std::vector<int>& ranks);

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> members_;

  // The current meeting, by rank.
  std::vector<const Call*> calls_;
  std::vector<Tensor> arriving_;  ///< what ranks bring
  std::vector<Tensor> offers_;    ///< what they brought to the last meeting; peers read it
  std::vector<bool> reading_;
  int leaving_ = 0;  ///< how many ranks are in leave()
  int arrived_ = 0;
  int64_t meetings_ = 0;

  Pairs sends_, recvs_;  ///< of sides that came first

  struct Place {
    int color, key;
  };
  std::vector<Place> places_;  ///< by rank: the current split
  std::map<int, std::shared_ptr<ThreadGroup>> children_;
};

class ThreadComm : public Comm {
 public:
  ThreadComm(std::shared_ptr<ThreadGroup> group, int rank)
      : Comm(rank, group->size()), group_(std::move(group)) {}
  std::string_view kind() const override { return "thread"; }
  void abandon() noexcept override;

 protected:
  void perform(const Call& call, const std::function<void()>& body) override;

 private:
  using Then = ThreadGroup::Then;
  void meet(Tensor mine, Then then) { group_->meet(rank(), *current(), mine, then); }
  void copy(Tensor out, Tensor inp) const { copy_elements(out, inp, device()); }

  void do_all_reduce(Tensor data, Combine combine) override;
  void do_reduce_scatter(Tensor out, Tensor inp) override;
  void do_all_gather(Tensor out, Tensor inp) override;
  void do_broadcast(Tensor data, int root) override;
  void do_all_to_all(Tensor out, Tensor inp) override;
  void do_barrier() override;
  std::unique_ptr<Comm> do_split(int color, int key) override;
  Pending do_isend(Tensor data, int to) override;
  Pending do_irecv(Tensor data, int from) override;

  std::shared_ptr<ThreadGroup> group_;
};

}  // namespace ladder
