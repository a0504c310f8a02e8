#include "common/comm/thread_comm.h"

#include "kernels/transfer.h"

namespace ladder {
namespace {

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

void ThreadComm::do_reduce_scatter(Tensor out, Tensor inp, Combine combine) {
  const Chunks chunks{inp.size(), size()};
  meet(flat(inp), Then::Read);
  copy(out, chunks.of(flat(inp), rank()));
  combine_chunks(device_ctx(), *group_, chunks, rank(), flat(out), combine);
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
