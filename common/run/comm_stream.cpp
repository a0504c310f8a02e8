#include "common/run/comm_stream.h"

#include "common/run/backend.h"

namespace ladder {

CommStream::CommStream(Arena& arena, const Ctx& ctx, Comm& comm, const RunOptions& run,
                       Reduction reduction, int64_t elements, bool beside)
    : ctx_(ctx), group_(comm.split(0, comm.rank())), device_(beside ? open_device(run) : nullptr) {
  beside_.kernels = ctx.kernels;
  beside_.device = device_.get();
  if (beside) group_->attach(device_.get());
  collectives_.emplace(*group_, beside ? beside_ : ctx, reduction, arena, Dtype::F32, elements);
  if (beside) queue_.emplace(*group_);
}

Pending CommStream::run(Job job) {
  if (!has_thread()) {
    job(ctx_, *collectives_);
    return {};
  }
  ctx_.synchronize();  // the other thread does not wait for this rank's kernels
  return queue_->run([this, job = std::move(job)] { job(beside_, *collectives_); });
}

void CommStream::show(Log& log) {
  if (has_thread()) log.record_beside(beside_, events_);
  log.count(*group_);
}

}  // namespace ladder
