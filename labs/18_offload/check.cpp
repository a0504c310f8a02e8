// Inputs in a file that writes down what is done to it, a small model that computes from them, and
// arenas whose states lie in files.
#include "labs/check.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "common/comm/self_comm.h"
#include "labs/kernel_counts.h"

// What a student writes stands in the chapter's program, too. Its main() has another name here.
#define main chapter_main
#include "chapters/18_offload/main.cpp"
#undef main

namespace ladder::lab {
namespace {

/// Stands in for the disk. No real file could say how many bytes have moved.
struct Disk {
  bool on = false;         ///< else files are real ones
  bool buffered = false;   ///< by the C library, until somebody flushes
  size_t room = SIZE_MAX;  ///< bytes that it takes
  int64_t moved = 0;       ///< bytes, both ways
  std::string bytes = {};
  size_t at = 0;
};
Disk disk;

ssize_t read_disk(void*, char* to, size_t n) {
  n = std::min(n, disk.bytes.size() - std::min(disk.at, disk.bytes.size()));
  std::memcpy(to, disk.bytes.data() + disk.at, n);
  disk.at += n;
  disk.moved += static_cast<int64_t>(n);
  return static_cast<ssize_t>(n);
}
ssize_t write_disk(void*, const char* from, size_t n) {
  errno = ENOSPC;
  n = std::min(n, disk.room - std::min(disk.at, disk.room));
  disk.bytes.resize(std::max(disk.bytes.size(), disk.at + n));
  std::memcpy(disk.bytes.data() + disk.at, from, n);
  disk.at += n;
  disk.moved += static_cast<int64_t>(n);
  return static_cast<ssize_t>(n);
}
int seek_disk(void*, off64_t* to, int whence) {
  const size_t begin = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? disk.at : disk.bytes.size();
  disk.at = begin + static_cast<size_t>(*to);
  *to = static_cast<off64_t>(disk.at);
  return 0;
}

}  // namespace
}  // namespace ladder::lab

/// Takes the place of the C library's, which makes a temporary file of a descriptor.
extern "C" FILE* fdopen(int fd, const char* mode) noexcept {
  using namespace ladder::lab;
  if (!disk.on) return reinterpret_cast<decltype(&fdopen)>(::dlsym(RTLD_NEXT, "fdopen"))(fd, mode);
  ::close(fd);
  FILE* file = ::fopencookie(nullptr, mode, {read_disk, write_disk, seek_disk, nullptr});
  if (!disk.buffered) std::setvbuf(file, nullptr, _IONBF, 0);
  return file;
}

namespace ladder::lab {
namespace {

Tensor drawn(const Sheet& sheet, Arena& arena, Dtype dtype, Shape shape, uint64_t stream) {
  CountedKernels kernels;
  const Tensor x = arena.zeros(Mem::Workspace, "drawn", Dtype::F32, shape),
               out = arena.zeros(Mem::Workspace, "lab", dtype, shape);
  sheet.draw(x, "inputs", stream);
  kernels.ctx().kernels->cast(kernels.ctx(), out, x);
  return out;
}

void run_needed(Sheet& sheet) {
  for (const char* policy : {"full", "every:2", "every:3", "sqrt", "none", "selective"})
    for (const int64_t L : {3, 5, 6}) {
      std::string blocks;
      const std::vector<bool> needed = inputs_needed(Recompute(policy, L), L);
      for (size_t l = 0; l < needed.size(); ++l)
        if (needed[l]) blocks += fmt::format("{} ", l);
      sheet.text(fmt::format("needed/{}: {} blocks", policy, L), blocks);
    }
}

void run_file(Sheet& sheet, const char* name, Dtype dtype) {
  disk = {.on = true};
  Arena arena;
  OffloadFile file({true, false, true, true}), none({});
  std::vector<Tensor> inputs;
  for (uint64_t l = 0; l < 6; ++l) inputs.push_back(drawn(sheet, arena, dtype, {2, 3, 8}, l));
  for (int64_t l = 0; l < 4; ++l) file.write(Ctx{}, l, inputs[static_cast<size_t>(l)]);
  file.write(Ctx{}, 2, inputs[4]);  // the next micro-step
  for (const int64_t l : {3, 2, 0}) {
    const Tensor back = arena.zeros(Mem::Workspace, "back", dtype, {2, 3, 8});
    file.read(Ctx{}, l, back);
    sheet.bits(fmt::format("file/{}: block {}", name, l), back);
  }
  if (dtype == Dtype::F32)
    sheet.text("formula/moved", fmt::format("{} of {}", file.moved(), disk.moved));
  // Without a file nothing happens.
  none.write(Ctx{}, 0, inputs[0]);
  none.read(Ctx{}, 0, inputs[5]);
  sheet.bits(fmt::format("file/no file, {}: as it was", name), inputs[5]);
}

void run_failures(Sheet& sheet) {
  Arena arena;
  const Tensor input = drawn(sheet, arena, Dtype::F32, {2, 3, 8}, 0);
  const auto ends = [](auto&& call) {
    try {
      call();
      return "without an exception";
    } catch (const UserError&) {
      return "with a UserError";
    }
  };
  for (const bool buffered : {false, true})
    for (const size_t room : {0, 20}) {  // nothing fits, or a part of the input
      disk = {.on = true, .buffered = buffered, .room = room};
      OffloadFile file({true, true});
      sheet.text(
          fmt::format("failures/a full disk{}: {} bytes fit", buffered ? ", seen late" : "", room),
          ends([&] { file.write(Ctx{}, 0, input); }));
      disk.room = SIZE_MAX;
    }
  disk = {.on = true};
  OffloadFile file({true, true});
  file.write(Ctx{}, 0, input);
  for (const size_t there : {0, 20}) {
    disk.bytes.resize(static_cast<size_t>(input.bytes()) + there);
    sheet.text(fmt::format("failures/an input that is not there: {} bytes are", there),
               ends([&] { file.read(Ctx{}, 1, input); }));
  }
}

std::string names(const std::vector<Offload>& what) {
  std::string words;
  for (const Offload one : what)
    words += fmt::format("{}{}", words.empty() ? "" : ",", to_string(one));
  return words;
}

struct Case {
  const char* policy;
  int64_t micro;
  const char* precision = "fp32";
};

Options options_of(const Sheet& sheet, const Case& c, bool offload) {
  Options o;
  o.run.model = "nano";
  o.run.layers = 5;
  o.run.heads = 2;
  o.run.channels = 16;
  o.run.seq_len = sheet.pick<int64_t>("tokens", {14, 16});
  o.run.batch = 4;
  o.run.threads = 1;
  o.accumulate.micro_batch = c.micro;
  o.precision.name = c.precision;
  o.recompute.policy = c.policy;
  if (offload) o.offload.what = {Offload::Inputs};
  return o;
}

int64_t kept(const Options& o) {
  SelfComm comm;
  const Layout layout(o, 0);
  const Memory m{o, layout, comm};
  return m.arena.peak()[Mem::Activation];
}

void run_model(Sheet& sheet, const Case& c) {
  disk = {.on = true};
  const Options o = options_of(sheet, c, true);
  SelfComm comm;
  const Layout layout(o, 0);
  Memory m{o, layout, comm};
  std::ranges::transform(sheet.normals("weights", layout.local.size()),
                         m.weights.flat.master.data<float>(), [](float x) { return 0.3f * x; });
  m.weights.refresh(m.ctx);
  const Random random(sheet.seed(), "text");
  for (uint64_t i = 0; i < static_cast<uint64_t>(m.batch.tokens.size()); ++i) {
    m.batch.tokens.data<int32_t>()[i] = static_cast<int32_t>(random.below(256, i));
    m.batch.targets.data<int32_t>()[i] = static_cast<int32_t>(random.below(256, i, 1));
  }

  forward(m, m.acts.first(1), m.batch.tokens.first(1));  // a validation
  m.params.reshard();
  // As train_step() does it.
  m.inputs.begin_step();
  for (int64_t k = 0; k < layout.GA; ++k) {
    const Batch part = m.batch.slice(k * layout.micro, layout.micro);
    m.grads.begin(k, layout.GA);
    forward(m, m.acts, part.tokens, /*train=*/true);
    head(m, m.acts, m.dacts, m.losses.slice(k * layout.micro, layout.micro), part.targets,
         layout.gpt.vocab, 0.1f);
    backward(m, layout, m.acts, m.dacts, part.tokens);
    m.grads.end();
  }
  const Flat grads = layout.local.own(m.grads.finish(m.ctx).tensor);
  for (int64_t s = 0; s < layout.local.sections(); ++s)
    sheet.bits(fmt::format("gradients/all: section {}", s), layout.local.section_of(grads, s));

  sheet.without_idea("kept", kept(options_of(sheet, c, false)));
  sheet.count("kept", m.arena.peak()[Mem::Activation]);
  sheet.without_idea("moved",
                     2 * layout.gpt.layers * layout.batch * m.acts.embed.bytes() / layout.micro);
  sheet.count("moved", disk.moved);
}

void run_states(Sheet& sheet, const std::vector<Offload>& what) {
  disk = {};
  const OffloadOptions options{what};
  Arena arena;
  const OffloadedStates states(arena, options);
  int64_t kept = 0, all = 0;
  for (int i = 0; i < kMemCount; ++i) {
    const Mem mem = static_cast<Mem>(i);
    const int64_t size = 1024 * (8 + i);  // nearly equal: to forget one of two costs half
    arena.alloc(mem, "lab", Dtype::U8, {size});
    kept += arena.peak()[mem];
    all += size;
  }
  sheet.without_idea("kept", all);
  sheet.count("kept", kept);
}

const std::vector<Case> kCases{
    {"full", 4}, {"full", 2, "bf16"}, {"every:2", 1}, {"every:3", 2}, {"selective", 4}};
using enum Offload;
const std::vector<std::vector<Offload>> kStates{{Optimizer}, {Weights}, {Optimizer, Weights}};

/// In cases of their own: a formula that is wrong spoils no count.
void run_formulas(Sheet& sheet) {
  for (const Case& c : kCases) {
    const Options o = options_of(sheet, c, true);
    const Layout layout(o, 0);
    sheet.text(fmt::format("formula/a step: {}, {}", c.policy, c.precision),
               fmt::format("{}", o.offload.input_bytes(layout.gpt, layout.recompute, layout.acts,
                                                       layout.share)));
    // Without --offload inputs nothing moves.
    sheet.text(fmt::format("formula/a step: {}, {}, in memory", c.policy, c.precision),
               fmt::format("{}", OffloadOptions{}.input_bytes(layout.gpt, layout.recompute,
                                                              layout.acts, layout.share)));
  }
  MemoryBytes bytes;
  for (int i = 0; i < kMemCount; ++i) bytes[static_cast<Mem>(i)] = 1024 << i;
  for (const auto& what : kStates)
    sheet.text(fmt::format("formula/left in memory: {}", names(what)),
               fmt::format("{}", OffloadOptions{what}.left(bytes).total()));
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("policies", [&] { run_needed(sheet); });
  sheet.run("a file of FP32", [&] { run_file(sheet, "FP32", Dtype::F32); });
  sheet.run("a file of BF16", [&] { run_file(sheet, "BF16", Dtype::BF16); });
  sheet.run("a bad disk", [&] { run_failures(sheet); });
  for (const Case& c : kCases)
    sheet.run(fmt::format("--recompute {}, {} at a time, {}", c.policy, c.micro, c.precision),
              [&] { run_model(sheet, c); });
  for (const auto& what : kStates)
    sheet.run("--offload " + names(what), [&] { run_states(sheet, what); });
  sheet.run("formulas", [&] { run_formulas(sheet); });
}

}  // namespace ladder::lab
