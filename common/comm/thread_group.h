// ThreadGroup: what the ranks of one ThreadComm share: where they meet, and messages on their way.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/comm.h"
#include "common/comm/thread_world.h"

namespace ladder {

/// One side of a message, until the other side has come and copied.
struct Post {
  int rank;  ///< in the world
  Call call;
  Tensor data;
  Device* device;      ///< where data may lie; null: on the host
  bool taken = false;  ///< the other side copies now
  bool done = false;
};
/// Of one side, from one rank to another; a deque, since messages keep their order.
using Posts = std::deque<std::shared_ptr<Post>>;

/// Ranks are those of the group, but where "of the world" is said.
class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  /// @param members by rank, their ranks of the world
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  ThreadWorld& world() { return *world_; }

  /// What a rank does after a meeting, until the next one.
  enum class Then : uint8_t { Read, Leave };
  /// Returns once all ranks are here; fails the run if they are in different calls.
  /// @param mine what peers may read after the meeting, if all will Read
  void meet(int rank, const Call& call, Tensor mine, Then then);
  /// What `rank` offered. Between two meetings
  Tensor offered(int rank) const { return offers_[rank]; }
  /// `rank` fails in the middle of reading: its peers need not wait for it. Returns once they have
  /// read what it offered.
  void leave(int rank);

  /// One side of a message: copies if the other side has come, else waits for it.
  Pending post_send(int from, int to, const Call& call, Tensor data, Device* device);
  Pending post_recv(int from, int to, const Call& call, Tensor data, Device* device);

  /// The new group of `rank`, and its rank there.
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

  // The meeting under way, by rank.
  std::vector<const Call*> calls_;
  std::vector<Tensor> arriving_;  ///< what they bring
  std::vector<Tensor> offers_;    ///< what they brought to the last meeting; peers read it
  std::vector<bool> reading_;
  int leaving_ = 0;  ///< ranks in leave()
  int arrived_ = 0;
  int64_t meetings_ = 0;

  Pairs sends_, recvs_;  ///< of sides that came first

  struct Place {
    int color, key;
  };
  std::vector<Place> places_;  ///< by rank: the split under way
  std::map<int, std::shared_ptr<ThreadGroup>> children_;
};

}  // namespace ladder
