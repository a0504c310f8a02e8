// Bytes and records that are drawn; steps on several ranks whose weights are drawn; and series with
// planted spikes, for the detector. Nothing is trained.
#include "labs/check.h"

#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "chapters/29_monitor/detectors.h"
#include "chapters/29_monitor/event_file.h"
#include "chapters/29_monitor/watch.h"
#include "common/model/measure.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

std::string drawn(const Sheet& sheet, std::string_view name, uint64_t n) {
  const Random random(sheet.seed(), name);
  std::string bytes;
  for (uint64_t i = 0; i < n; ++i) bytes += static_cast<char>(random.below(256, i));
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

/// What a call returns, or "out of range" if it throws that.
template <class Call>
std::string said(Call&& call) {
  try {
    return call();
  } catch (const std::out_of_range&) {
    return "out of range";
  }
}

void run_checksums(Sheet& sheet) {
  for (const uint64_t n : {0, 1, 8, 9, 300}) {
    const uint32_t crc = crc32c(drawn(sheet, "bytes", n));
    sheet.text(fmt::format("checksums/crc32c: {} bytes", n), fmt::format("{:08x}", crc));
  }
  for (uint32_t i = 0; i < 3; ++i) {
    const auto crc = static_cast<uint32_t>(Random(sheet.seed(), "crc").below(1ULL << 32, i));
    sheet.text(fmt::format("checksums/masked: {}", i), fmt::format("{:08x}", masked(crc)));
  }
}

void run_records(Sheet& sheet) {
  for (const uint64_t n : {0, 1, 20, 300})
    sheet.text(fmt::format("records/record: {} bytes", n), hex(record_of(drawn(sheet, "data", n))));
  for (const uint64_t bits : {0, 6, 7, 8, 14, 31, 63}) {
    const uint64_t top = uint64_t{1} << bits;
    for (const uint64_t value : {top - 1, top, top + sheet.pick<uint64_t>("more", {3, 5, 9}) % top})
      sheet.text(fmt::format("records/varint of {} bits: {}", bits, value),
                 hex(Message::varint(value)));
  }
}

/// `record` with its length replaced, and perhaps the length's checksum as well.
std::string with_length(std::string record, uint64_t n, bool sealed) {
  const std::string length = little_endian(n);
  record.replace(0, 8, length);
  if (sealed) record.replace(8, 4, little_endian(masked(crc32c(length))));
  return record;
}

void run_torn(Sheet& sheet) {
  const std::string a = record_of(drawn(sheet, "a", 20)), b = record_of(drawn(sheet, "b", 40));
  const auto ask = [&](const std::string& name, const std::string& file) {
    sheet.text("torn/" + name, said([&] { return fmt::format("{}", whole_records(file)); }));
  };
  const auto cut = sheet.pick<size_t>("cut", {1, 3, 5});
  for (const size_t n : {size_t{0}, cut, 9 + cut, a.size() - cut, a.size(), a.size() + cut,
                         a.size() + 11, a.size() + 12 + cut, (a + b).size() - cut, (a + b).size()})
    ask(fmt::format("cut: after {} bytes", n), (a + b).substr(0, n));
  ask("cut: an empty record at the end", a + record_of(""));
  std::string damaged = a + b;
  damaged[a.size() + 12 + cut] ^= 4;
  ask("damaged: data", damaged + a);
  damaged = a + b;
  damaged.back() ^= 4;
  ask("damaged: checksum", damaged + a);
  // A length that fits the file, but whose checksum is that of another.
  ask("damaged: length", a + with_length(record_of(""), 0, false).replace(8, 4, "abcd") + a);
  for (const uint64_t n : {uint64_t{1000}, ~uint64_t{0}, ~uint64_t{0} - 11})
    ask(fmt::format("length: {}", n), a + with_length(b, n, true));
  // A length so large that the end of its record, modulo 2^64, is inside the first record, and
  // there stands the checksum of all that follows the length.
  const std::string rest = drawn(sheet, "rest", 40);
  std::string data = drawn(sheet, "a", 20);
  data.replace(cut, 4, little_endian(masked(crc32c(rest))));
  const std::string first = record_of(data);
  const uint64_t back = uint64_t{12 + cut} - (first.size() + 12);
  ask("length: that comes back",
      first + with_length(record_of(""), back, true).substr(0, 12) + rest);
}

using Facts = std::vector<std::string>;

void add_facts(int64_t step, const TensorSums& sums, Facts& facts) {
  for (int64_t s = 0; s < sums.sections(); ++s)
    facts.push_back(fmt::format("step {}, section {}: {:a} {:a}", step, s,
                                sums.section(s, Of::Gradient), sums.section(s, Of::Update)));
  for (int64_t i = 0; i < sums.tensors(); ++i) {
    const TensorFacts f = sums.facts(i);
    facts.push_back(fmt::format("step {}, {}: {:a} {:a} {:a}, largest {:a}, zeros {:a}", step,
                                f.name, f.gradient, f.weight, f.update, f.largest, f.zeros));
  }
}

/// What a call computes, if it computes anything.
template <class Call>
std::string costs(Call&& call) {
  try {
    call();
    return "nothing ";
  } catch (const UserError& what) {
    return std::string(what.what()) + " ";
  }
}

void work(const Sheet& sheet, const GptConfig& gpt, Comm& world, Facts& facts) {
  OneRank rank(world);
  auto& [run, arena, ctx] = rank;
  const ParamLayout params(gpt, world.size()), shard = params.shard(world.rank());
  const auto buffer = [&](const char* name) {
    const Tensor all = arena.zeros(Mem::Grad, name, Dtype::F32, {shard.size()});
    for (const ParamSpec& spec : shard.specs()) {
      const ParamSpec& whole = params.spec(spec.name);
      const std::vector<float> values = sheet.normals(name + spec.name, whole.live());
      const Tensor part = flat(shard.tensor(Shard(all), spec));
      std::copy_n(values.begin() + spec.part.begin, spec.live(), part.data<float>());
    }
    return Shard(all);
  };
  const Shard grads = buffer("grads"), weights = buffer("weights"), update = buffer("update");
  Watch watch(arena, params, shard, Dtype::F32, kNormLeaf, {.every = 2});
  const Tensor limbs = arena.alloc(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
  for (const int64_t step : {0, 2, 4}) {
    if (step == 4) {  // no number: the last tensor on each rank
      const ParamSpec& spec = shard.specs().back();
      shard.tensor(grads, spec).data<float>()[0] = std::numeric_limits<float>::infinity();
    }
    watch.begin(ctx, step);
    watch.before(ctx, grads, weights);
    ctx.kernels->add(ctx, weights.tensor, weights.tensor, update.tensor);
    watch.after(ctx, weights);
    watch.finish(ctx, world, grad_norm(ctx, grads, shard, limbs, &world));
    add_facts(step, *watch.seen(), facts);
  }
  // A step that is not watched must cost nothing.
  Kernels none = *ctx.kernels;
  none.squared_norm = [](const Ctx&, Tensor, Tensor) { throw UserError("a norm"); };
  none.add = [](const Ctx&, Tensor, Tensor, Tensor) { throw UserError("a sum"); };
  Ctx idle = ctx;
  idle.kernels = &none;
  watch.begin(idle, 5);
  facts.push_back("step 5, not watched: " + costs([&] { watch.before(idle, grads, weights); }) +
                  costs([&] { watch.after(idle, weights); }));
}

void run_tensors(Sheet& sheet, int ranks) {
  GptConfig gpt = small_gpt();
  gpt.channels = sheet.pick<int64_t>("channels", {16, 24});
  gpt.positions = sheet.pick<int64_t>("positions", {9, 13});
  const auto seen =
      on_ranks<Facts>(ranks, [&](Comm& world, Facts& facts) { work(sheet, gpt, world, facts); });
  for (size_t r = 0; r < seen.size(); ++r)
    for (const std::string& fact : seen[r])
      sheet.text(
          fmt::format("tensors/{} ranks: rank {}, {}", ranks, r, fact.substr(0, fact.find(':'))),
          fact);
}

void run_ratios(Sheet& sheet) {
  for (const auto& [u, w] : {std::pair{3.0, 4.0}, {0.5, 8.0}, {0.0, 0.0}, {0.0, 2.0}, {1.0, 0.0}})
    sheet.text(fmt::format("tensors/ratio: {} of {}", u, w),
               fmt::format("{:a}", update_ratio(u, w)));
}

/// Whether there is a limit for windows of some sizes.
void run_limits(Sheet& sheet) {
  const std::vector<float> losses = sheet.normals("losses", 40);
  for (const size_t least : {sheet.pick<size_t>("least", {2, 3, 5}), size_t{16}, size_t{32}})
    for (const size_t n : {size_t{1}, least - 1, least, least + 5}) {
      std::deque<double> window;
      for (size_t i = 0; i < n; ++i) window.push_back(8 + double{losses[i]});
      sheet.text(fmt::format("limit/there: after {} of {}", n, least),
                 std::isinf(spike_limit(window, 6, least)) ? "infinite" : "finite");
    }
}

/// A series whose level falls, with noise, and spikes that come in twos, well above the
/// limit that its noise asks for. Spikes enter the window, too. No two have one level: a limit that
/// fits one series fits no other.
void run_detector(Sheet& sheet, uint64_t series) {
  constexpr int kSteps = 400, kBearable = kSteps / 100;
  constexpr size_t kWindow = 32;
  const Random random(sheet.seed(), "series");
  const auto one_of = [&](uint64_t what, const std::vector<double>& choices) {
    return choices[random.below(choices.size(), 8 * series + what)];
  };
  const double level = std::pow(10, static_cast<double>(series) - 3) * one_of(0, {1, 1.5, 2}),
               noise = level * one_of(1, {0.03, 0.05, 0.1}),
               k = series % 2 == 0 ? 4 : one_of(2, {8, 10, 12});
  const auto least = static_cast<size_t>(one_of(3, {12, 16, 24}));
  const std::vector<float> drawn = sheet.normals("noise", kSteps, series + 1);
  int missed = 0, planted = 0, false_alarms = 0;
  std::deque<double> window;
  for (int step = 0; step < kSteps; ++step) {
    const bool spike = step >= 30 && step % (20 + static_cast<int>(series)) < 2;
    const double by_chance = double{drawn[static_cast<size_t>(step)]};
    const double loss =
        level * (1 - 0.0003 * step) + noise * by_chance + (spike ? 2.2 * k * noise : 0);
    const bool alarm = loss > spike_limit(window, k, least);
    planted += spike;
    missed += spike && !alarm;
    false_alarms += alarm && !spike;
    window.push_back(loss);
    if (window.size() > kWindow) window.pop_front();
  }
  sheet.without_idea("missed", planted);
  sheet.count("missed", false_alarms > kBearable ? planted : missed);
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("checksums", [&] { run_checksums(sheet); });
  sheet.run("records", [&] { run_records(sheet); });
  sheet.run("torn files", [&] { run_torn(sheet); });
  for (const int ranks : {1, 2, 4})
    sheet.run(fmt::format("{} ranks", ranks), [&] { run_tensors(sheet, ranks); });
  sheet.run("ratios", [&] { run_ratios(sheet); });
  sheet.run("limits", [&] { run_limits(sheet); });
  for (uint64_t series = 0; series < 5; ++series)
    sheet.run(fmt::format("series {}", series), [&] { run_detector(sheet, series); });
}

}  // namespace ladder::lab
