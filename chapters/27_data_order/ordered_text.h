// What a step reads: rows of the order. A thread reads them one step ahead. Without --sources it is
// what chapter 26 reads, and without --documents what chapter 07 reads.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "chapters/26_packing/packed_text.h"
#include "chapters/27_data_order/data_order.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/run/log.h"
#include "common/run/tokenizer.h"

namespace ladder {

class OrderedText {
 public:
  /// @param own which bundles of a step this rank has, ascending; @param B bundles of a step
  /// @throws UserError as PackedText and DataOrder do
  OrderedText(const RunOptions& run, const GptConfig& gpt, const PackOptions& packing,
              const SourceOptions& sources, std::vector<int64_t> own, int64_t B)
      : text_(run.text(gpt), packing, sources.held_out(run)),
        run_(run),
        gpt_(gpt),
        sources_(sources),
        own_(std::move(own)),
        B_(B) {
    if (sources.on()) order_.emplace(sources, packing, run, gpt);
  }

  /// Fills the batch with this rank's bundles of step `step`. `place` is then that of the next
  /// step, which a thread begins to read.
  /// @throws UserError if a file has changed, or if the data ends before the step
  void draw(BundleBatch& batch, OrderPlace& place, int64_t step) {
    if (!order_) return text_.draw(batch, place, run_.seed, step, own_, B_);
    const int64_t begin = now_ns();
    // The first step, or a place that did not come from the last draw().
    if (!ahead_.valid() || !(ahead_.get().before == place)) read_ahead(place);
    const OrderedStep now = ahead_.get();
    waited_ns_ += now_ns() - begin;
    read_ns_ += now.read_ns;
    if (!now.whole)
      throw UserError(
          "--epochs {}: the sources have no {} rows left, one for each of --batch {}; "
          "legal are more epochs",
          sources_.epochs, B_, B_);
    learned_ = now.learned;
    batch.clear();
    for (const std::vector<Piece>& pieces : now.bundles) batch.add(now, pieces);
    place = now.after;
    read_ahead(place);
  }

  /// Whether the data has a step after the last one that was drawn. The same on all ranks. With
  /// --epochs it waits until that step is read, and waited_ns_ does not count this.
  bool more() const { return sources_.epochs == 0 || ahead_.get().whole; }

  const PackedText& validation_text() const { return text_; }

  /// Counts targets as PackedText does.
  LossTargets targets() const {
    LossTargets counts = text_.targets();
    if (!counts.of_step) counts = targets_of(run_, gpt_);  // rows of a text, without documents
    if (order_) counts.of_step = [this](int64_t, int64_t) { return learned_; };
    return counts;
  }

  /// Prints what was read of each source, and puts it into --report.
  void report(Log& log, const OrderPlace& place) const {
    for (size_t s = 0; s < place.targets.size(); ++s) {
      const SourceFiles& source = sources_.sources[s];
      const int64_t documents = order_->sources()[s].documents(), count = place.counts_at_end[s];
      log.note(fmt::format(
          "{}: weight {}, {} documents dealt, {:.2f} epochs of {}; {} tokens learned", source.path,
          place.weights[s], count, static_cast<double>(count) / static_cast<double>(documents),
          documents, place.targets[s]));
      log.extra()["sources"].push_back({{"path", source.path},
                                        {"weight", place.weights[s]},
                                        {"since", place.since[s]},
                                        {"documents", documents},
                                        {"dealt", count},
                                        {"targets", place.targets[s]}});
    }
    if (order_)
      log.extra()["reading"] = {{"seconds", 1e-9 * static_cast<double>(read_ns_)},
                                {"waited", 1e-9 * static_cast<double>(waited_ns_)}};
  }

 private:
  void read_ahead(const OrderPlace& place) {
    ahead_ = std::async(std::launch::async, [this, place] {
      const int64_t begin = now_ns();
      OrderedStep step = order_->read(place, B_, own_);
      step.read_ns = now_ns() - begin;
      return step;
    });
  }

  PackedText text_;
  const RunOptions& run_;
  GptConfig gpt_;
  const SourceOptions& sources_;
  std::vector<int64_t> own_;
  int64_t B_;
  TargetCount learned_;                  ///< of the last step; on rank 0
  int64_t read_ns_ = 0, waited_ns_ = 0;  ///< the thread has read, and steps have waited for it
  std::optional<DataOrder> order_;
  std::shared_future<OrderedStep> ahead_;  ///< the next step; its thread ends before order_ does
};

/// The counts of all ranks.
inline PackCounts sum_over(Comm& comm, PackCounts counts) {
  comm.all_reduce(
      {.ptr = &counts, .dtype = Dtype::I64, .shape = {sizeof counts / sizeof(int64_t)}});
  return counts;
}

}  // namespace ladder
