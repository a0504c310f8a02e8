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

#include <memory>

#include "common/comm/comm.h"
#include "common/comm/elements.h"
#include "common/comm/thread_group.h"

namespace ladder {

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
  void do_reduce_scatter(Tensor out, Tensor inp, Combine combine) override;
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
