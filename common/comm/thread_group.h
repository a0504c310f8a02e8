// ThreadGroup: what the ranks of one ThreadComm share: their meetings, and messages in progress.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/comm.h"
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

/// Ranks are those of the group, unless "of the world" is said.
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
  void stop_reading(int rank);
  void wake_all();
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

}  // namespace ladder
