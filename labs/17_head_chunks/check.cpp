// The head of a micro-batch in chunks: losses, both gradients, and the memory and work they take.
#include "labs/check.h"

#include <algorithm>
#include <string>

// What a student writes stands in the chapter's program, too. Its main() has another name here.
#define main chapter_main
#include "chapters/17_head_chunks/main.cpp"
#undef main

namespace ladder::lab {
namespace {

void run_sizes(Sheet& sheet) {
  for (int64_t chunk = -1; chunk <= 8; ++chunk)
    for (const int64_t micro : {1, 4, 6}) {
      std::string said = "refused";
      try {
        said = fmt::format("{} sequence(s)", HeadChunkOptions{chunk}.of(micro));
      } catch (const UserError&) {
      }
      sheet.text(fmt::format("sizes/--head-chunk {}: a micro-batch of {}", chunk, micro), said);
    }
}

struct Case {
  int64_t batch, micro, chunk;
};

Options options_of(const Sheet& sheet, const Case& c) {
  Options o;
  o.run.model = "nano";
  o.run.layers = 1;
  o.run.heads = 2;
  o.run.channels = 16;
  o.run.seq_len = sheet.pick<int64_t>("tokens", {14, 16});
  o.run.batch = c.batch;
  o.run.threads = 1;
  o.accumulate.micro_batch = c.micro;
  o.head_chunk.chunk = c.chunk;
  return o;
}

/// Without the scratch memory of kernels.
int64_t held(const Options& o) {
  const Layout layout(o);
  const Memory m{o, layout};
  return m.arena.peak()[Mem::Activation] + m.arena.peak()[Mem::Workspace] - scratch_bytes(o.run);
}

void run_head(Sheet& sheet, const Case& c) {
  const Options o = options_of(sheet, c);
  const Layout layout(o);
  Memory m{o, layout};
  sheet.draw(m.weights.master, "weights");
  const Random random(sheet.seed(), "targets");
  for (int64_t i = 0; i < m.batch.targets.size(); ++i)
    m.batch.targets.data<int32_t>()[i] =
        static_cast<int32_t>(random.below(static_cast<uint64_t>(layout.gpt.vocab), i));

  // The same as in train_step().
  for (int64_t k = 0; k < layout.GA; ++k) {
    const int64_t first = k * layout.micro;
    sheet.draw(m.acts.norm, "inputs", k);
    m.grads.begin(k);
    head(m, m.grads.view(), m.acts, m.dacts, m.losses.slice(first, layout.micro),
         m.batch.targets.slice(first, layout.micro), layout.gpt.vocab, 0.01f, m.grads.into());
    sheet.bits(fmt::format("losses/gradient of the input, micro-step {}", k), m.dacts.branch);
    m.grads.end(m.ctx, k, layout.GA);
  }
  sheet.bits("losses/losses", m.losses);
  sheet.bits("weights", m.grads.view().head_w);

  sheet.without_idea("held", held(options_of(sheet, {c.batch, c.micro, 0})));
  sheet.count("held", held(o));
  // A third of the products makes logits. Without the idea logits are made for the losses, and once
  // more for the gradient.
  sheet.without_idea("flops", m.flops.all / 3 * 4);
  sheet.count("flops", m.flops.all);
}

/// A validation has no gradients: the head of each chunk is made without one.
void run_validation(Sheet& sheet, const Case& c) {
  const Options o = options_of(sheet, c);
  const Layout layout(o);
  Memory m{o, layout};
  const int64_t last = head_chunks(m.acts) - 1;
  const HeadChunk chunk(last, m.acts, m.losses.first(layout.micro),
                        m.batch.targets.first(layout.micro));
  sheet.text("losses/gradient of the input in a validation", chunk.dinp ? "a tensor" : "null");
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("--head-chunk", [&] { run_sizes(sheet); });
  for (const Case& c : {Case{8, 8, 2}, Case{5, 5, 1}, Case{6, 6, 4}, Case{8, 4, 1}, Case{8, 4, 2},
                        Case{8, 2, 4}, Case{3, 3, 0}}) {
    const std::string name =
        fmt::format("batch {}, micro-batch {}, --head-chunk {}", c.batch, c.micro, c.chunk);
    sheet.run(name, [&] { run_head(sheet, c); });
    sheet.run(name + ", validated", [&] { run_validation(sheet, c); });
  }
}

}  // namespace ladder::lab
