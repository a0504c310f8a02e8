// SelfComm: a group of one rank. Nothing travels.
#pragma once

#include "common/comm/comm.h"
#include "common/comm/elements.h"

namespace ladder {

class SelfComm : public Comm {
 public:
  SelfComm() : Comm(0, 1) {}
  std::string_view kind() const override { return "self"; }
  void abandon() noexcept override {}

 private:
  void do_all_reduce(Tensor, Combine) override {}
  void do_reduce_scatter(Tensor out, Tensor inp) override { copy_elements(out, inp, device()); }
  void do_all_gather(Tensor out, Tensor inp) override { copy_elements(out, inp, device()); }
  void do_broadcast(Tensor, int) override {}
  void do_all_to_all(Tensor out, Tensor inp) override { copy_elements(out, inp, device()); }
  void do_barrier() override {}
  std::unique_ptr<Comm> do_split(int, int) override { return std::make_unique<SelfComm>(); }
  // Comm refuses messages to oneself, and there is no other rank.
  Pending do_isend(Tensor, int) override { return {}; }
  Pending do_irecv(Tensor, int) override { return {}; }
};

}  // namespace ladder
