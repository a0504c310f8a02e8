// Bytes and records that are drawn; a step on several ranks whose weights are drawn; and series
// with planted spikes, for the detector. Nothing is trained.
#include "labs/check.h"

#include <deque>
#include <set>
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
}

using Facts = std::vector<std::string>;

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
  Watch watch(arena, params, shard, Dtype::F32, kNormLeaf, {.every = 1});
  const Tensor limbs = arena.alloc(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
  watch.begin(ctx, 0);
  watch.before(ctx, grads, weights);
  ctx.kernels->add(ctx, weights.tensor, weights.tensor, update.tensor);
  watch.after(ctx, weights);
  watch.finish(ctx, world, grad_norm(ctx, grads, shard, limbs, &world));
  const TensorSums& sums = *watch.seen();
  for (int64_t s = 0; s < sums.sections(); ++s)
    facts.push_back(fmt::format("section {}: {:a} {:a}", s, sums.section(s, Of::Gradient),
                                sums.section(s, Of::Update)));
  for (int64_t i = 0; i < sums.tensors(); ++i) {
    const TensorFacts f = sums.facts(i);
    facts.push_back(fmt::format("{}: {:a} {:a} {:a}, largest {:a}, zeros {:a}", f.name, f.gradient,
                                f.weight, f.update, f.largest, f.zeros));
  }
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

/// Series with a level that falls, noise, and spikes that come in twos. Spikes enter the window,
/// too.
void run_detector(Sheet& sheet) {
  constexpr int kSteps = 400;
  constexpr size_t kWindow = 32, kLeast = 16;
  int missed = 0, planted = 0, false_alarms = 0;
  for (uint64_t series = 0; series < 4; ++series) {
    const std::vector<float> noise = sheet.normals("noise", kSteps, series + 1);
    std::set<int> spikes;
    for (int step = 30; step < kSteps - 1; step += 20 + static_cast<int>(series))
      spikes.insert(step), spikes.insert(step + 1);
    std::deque<double> window;
    for (int step = 0; step < kSteps; ++step) {
      const bool spike = spikes.contains(step);
      const double loss =
          3 - 0.001 * step + 0.05 * double{noise[static_cast<size_t>(step)]} + (spike ? 1.5 : 0);
      const bool alarm = loss > spike_limit(window, 6, kLeast);
      planted += spike;
      missed += spike && !alarm;
      false_alarms += alarm && !spike;
      window.push_back(loss);
      if (window.size() > kWindow) window.pop_front();
    }
  }
  constexpr int kBearable = 4 * kSteps / 100;
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
  sheet.run("detector", [&] { run_detector(sheet); });
}

}  // namespace ladder::lab
