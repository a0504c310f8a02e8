#include "common/comm/thread_comm.h"

#include <algorithm>

#include "common/comm/elements.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

/// A post that waits in its queue.
class WaitingPost : public Pending::Work {
 public:
  WaitingPost(std::shared_ptr<ThreadGroup> group, Posts& posts, std::shared_ptr<Post> post)
      : group_(std::move(group)), posts_(posts), post_(std::move(post)) {}

  void wait() override {
    ThreadWorld::Lock lock = group_->world().lock();
    group_->world().wait(
        lock, post_->rank, post_->call, [&] { return post_->done; }, [&] { return post_->taken; });
    post_.reset();
  }

  ~WaitingPost() override {
    if (!post_) return;
    ThreadWorld::Lock lock = group_->world().lock();
    if (!post_->taken) std::erase(posts_, post_);
    // Waits for the end of a copy. If the copy fails, the post is no longer taken, and the other
    // rank reports why. So this wait does not throw.
    const auto over = [&] { return post_->done || !post_->taken; };
    group_->world().wait(lock, post_->rank, post_->call, over, [&] { return !over(); });
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  Posts& posts_;
  std::shared_ptr<Post> post_;
};

std::string in_call(int rank, const Call& call) {
  return fmt::format("rank {} in {}", rank, to_string(call));
}

/// Whether two sides may belong to one message: equal size, and the same collective.
bool match(const Post& a, const Post& b) {
  const bool messages = a.call.operation == Operation::Send || a.call.operation == Operation::Recv;
  return a.data.size() == b.data.size() && a.data.dtype == b.data.dtype &&
         (messages ? b.call.operation == Operation::Send || b.call.operation == Operation::Recv
                   : agree(a.call, b.call));
}

/// `into` holds chunk `i` of rank i. Combines chunk `i` of all other ranks into it, in their order.
void combine_chunks(const Ctx& ctx, const ThreadGroup& group, const Chunks& chunks, int i,
                    Tensor into, Combine combine) {
  const HostCopy sum = HostCopy::of(ctx, into);
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == i) continue;
    const HostCopy part = HostCopy::of(ctx, chunks.of(flat(group.offered(peer)), i));
    combine_elements(sum.tensor(), part.tensor(), combine);
  }
  sum.send();
}

}  // namespace

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members)
    : world_(std::move(world)),
      members_(std::move(members)),
      calls_(members_.size()),
      arriving_(members_.size()),
      offers_(members_.size()),
      reading_(members_.size()),
      places_(members_.size()) {}

// ---- meetings ----------------------------------------------------------------------------------

void ThreadGroup::meet(int rank, const Call& call, Tensor mine, Then then) {
  Lock lock = world_->lock();
  stop_reading(lock, rank);
  calls_[rank] = &call;
  arriving_[rank] = mine;
  const int64_t meeting = meetings_;
  if (!world_->failed() && ++arrived_ == size()) {
    check_calls();
    arrived_ = 0;
    ++meetings_;
    offers_ = arriving_;
    reading_.assign(members_.size(), then == Then::Read);
    return world_->wake(lock, members_);
  }
  // Nobody leaves, not even if the run has failed, while a peer reads what this rank offered.
  world_->wait(
      lock, members_[rank], call, [&] { return meetings_ != meeting; },
      [&] { return std::ranges::count(reading_, true) > 0; });
}

void ThreadGroup::leave(int rank) {
  Lock lock = world_->lock();
  stop_reading(lock, rank);
  // What this rank offered vanishes with it, so its peers first read it to the end.
  const Call call;
  const auto all_read = [&] { return std::ranges::count(reading_, true) == 0; };
  ++leaving_;
  world_->wait(lock, members_[rank], call, all_read, [&] { return !all_read(); });
  --leaving_;
}

void ThreadGroup::stop_reading(Lock& lock, int rank) {
  reading_[rank] = false;
  if (!world_->failed() && leaving_ == 0) return;
  world_->wake(lock, members_);
  lock.lock();
}

void ThreadGroup::check_calls() {
  for (int rank = 1; rank < size(); ++rank)
    if (!agree(*calls_[0], *calls_[rank]))
      world_->fail_here("the ranks disagree: " + in_call(members_[0], *calls_[0]) + ", " +
                        in_call(members_[rank], *calls_[rank]));
}

// ---- messages ----------------------------------------------------------------------------------

Pending ThreadGroup::post_send(int from, int to, const Call& call, Tensor data, Device* device) {
  Lock lock = world_->lock();
  world_->check_alive();
  const auto mine = std::make_shared<Post>(Post{members_[from], call, data, device});
  const std::shared_ptr<Post> other = first_of(recvs_[{from, to}]);
  if (!other) return wait_in(sends_[{from, to}], mine);
  copy(lock, *mine, *other, *other, device ? device : other->device);
  return {};
}

Pending ThreadGroup::post_recv(int from, int to, const Call& call, Tensor data, Device* device) {
  Lock lock = world_->lock();
  world_->check_alive();
  const auto mine = std::make_shared<Post>(Post{members_[to], call, data, device});
  const std::shared_ptr<Post> other = first_of(sends_[{from, to}]);
  if (!other) return wait_in(recvs_[{from, to}], mine);
  copy(lock, *other, *mine, *other, device ? device : other->device);
  return {};
}

std::shared_ptr<Post> ThreadGroup::first_of(Posts& posts) {
  if (posts.empty()) return nullptr;
  std::shared_ptr<Post> first = posts.front();
  posts.pop_front();
  return first;
}

Pending ThreadGroup::wait_in(Posts& posts, const std::shared_ptr<Post>& mine) {
  posts.push_back(mine);
  return Pending(std::make_unique<WaitingPost>(shared_from_this(), posts, mine));
}

void ThreadGroup::copy(Lock& lock, const Post& from, const Post& to, Post& waiting,
                       Device* device) {
  if (!match(from, to))
    world_->fail_here("the ranks disagree: " + in_call(from.rank, from.call) + " sends " +
                      to_string(from.data.shape) + ", " + in_call(to.rank, to.call) + " expects " +
                      to_string(to.data.shape));
  waiting.taken = true;
  lock.unlock();
  try {
    copy_elements(to.data, from.data, device);
  } catch (...) {
    lock.lock();
    waiting.taken = false;  // it must not wait for this rank, which is about to fail
    throw;
  }
  lock.lock();
  waiting.done = true;
  world_->wake(lock, {waiting.rank});
}

// ---- split -------------------------------------------------------------------------------------

std::pair<std::shared_ptr<ThreadGroup>, int> ThreadGroup::split(int rank, int color, int key) {
  const Call call{.payload = {.shape = {0}}, .variant = "split"};
  places_[rank] = {color, key};  // others read it after the meeting
  meet(rank, call, {}, Then::Leave);
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if (places_[r].color == color) ranks.push_back(r);
  std::ranges::stable_sort(ranks, {}, [&](int r) { return places_[r].key; });
  const std::shared_ptr<ThreadGroup> group = child(color, ranks);
  meet(rank, call, {}, Then::Leave);
  {
    // All have their group. Nobody adds another one before all have been here.
    const Lock lock = world_->lock();
    children_.clear();
  }
  return {group, static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin())};
}

std::shared_ptr<ThreadGroup> ThreadGroup::child(int color, const std::vector<int>& ranks) {
  const Lock lock = world_->lock();
  std::shared_ptr<ThreadGroup>& child = children_[color];
  if (!child) {
    std::vector<int> members;
    for (int r : ranks) members.push_back(members_[r]);
    child = std::make_shared<ThreadGroup>(world_, members);
  }
  return child;
}

// ---- the operations ----------------------------------------------------------------------------

void ThreadComm::abandon() noexcept {
  const ThreadWorld::Lock lock = group_->world().lock();
  group_->world().abandon(rank());
}

void ThreadComm::perform(const Call&, const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    group_->leave(rank());  // otherwise its peers would wait until it has read
    throw;
  }
}

// Rank r combines chunk r in place, because no other rank reads or writes it there. Then every rank
// reads the chunks of the others.
void ThreadComm::do_all_reduce(Tensor data, Combine combine) {
  const Chunks chunks{data.size(), size()};
  const Tensor mine = flat(data);
  meet(mine, Then::Read);
  combine_chunks(device_ctx(), *group_, chunks, rank(), chunks.of(mine, rank()), combine);
  meet(mine, Then::Read);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) copy(chunks.of(mine, peer), chunks.of(group_->offered(peer), peer));
  meet({}, Then::Leave);
}

void ThreadComm::do_reduce_scatter(Tensor out, Tensor inp) {
  const Chunks chunks{inp.size(), size()};
  meet(flat(inp), Then::Read);
  copy(out, chunks.of(flat(inp), rank()));
  combine_chunks(device_ctx(), *group_, chunks, rank(), flat(out), Combine::Sum);
  meet({}, Then::Leave);
}

void ThreadComm::do_all_gather(Tensor out, Tensor inp) {
  const Chunks chunks{out.size(), size()};
  meet(inp, Then::Read);
  for (int peer = 0; peer < size(); ++peer) copy(chunks.of(flat(out), peer), group_->offered(peer));
  meet({}, Then::Leave);
}

void ThreadComm::do_broadcast(Tensor data, int root) {
  meet(data, Then::Read);
  if (rank() != root) copy(data, group_->offered(root));
  meet({}, Then::Leave);
}

void ThreadComm::do_all_to_all(Tensor out, Tensor inp) {
  const Chunks chunks{inp.size(), size()};
  meet(flat(inp), Then::Read);
  for (int peer = 0; peer < size(); ++peer)
    copy(chunks.of(flat(out), peer), chunks.of(group_->offered(peer), rank()));
  meet({}, Then::Leave);
}

void ThreadComm::do_barrier() { meet({}, Then::Leave); }

std::unique_ptr<Comm> ThreadComm::do_split(int color, int key) {
  auto [group, rank] = group_->split(this->rank(), color, key);
  return std::make_unique<ThreadComm>(std::move(group), rank);
}

Pending ThreadComm::do_isend(Tensor data, int to) {
  return group_->post_send(rank(), to, *current(), data, device());
}

Pending ThreadComm::do_irecv(Tensor data, int from) {
  return group_->post_recv(from, rank(), *current(), data, device());
}

}  // namespace ladder
