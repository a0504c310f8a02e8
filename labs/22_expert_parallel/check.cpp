// Rows of unequal parts, and an exchange of tokens whose experts are on several ranks.
#include "labs/check.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chapters/22_expert_parallel/exchange.h"
#include "common/random.h"
#include "labs/expert_choices.h"
#include "labs/meetings.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

/// Different numbers on each rank.
void fill(const Sheet& sheet, const Tensor& x, const char* name, int rank) {
  sheet.draw(x, name, static_cast<uint64_t>(rank) + 1);
}

/// What one rank has found.
struct Found {
  std::vector<Row> rows;             ///< their places begin with gates
  int64_t sent = 0, of_experts = 0;  ///< bytes; choices of experts on other ranks
  std::string predicted;

  void add(std::string place, std::vector<float> numbers) {
    rows.push_back({std::move(place), std::move(numbers)});
  }
};

template <class Body>
std::vector<Found> rows_of(Sheet& sheet, int ranks, Body&& body) {
  std::vector<Found> found = on_ranks<Found>(ranks, body);
  for (const Found& f : found)
    for (const Row& row : f.rows) sheet.bits(row.place, row.numbers);
  return found;
}

// ---- unequal parts ------------------------------------------------------------------------------

/// How many rows go from one rank to another: none, now and then.
int32_t rows_between(const Random& random, int from, int to) {
  return static_cast<int32_t>(
      random.below(5, static_cast<uint64_t>(from), static_cast<uint64_t>(to)));
}
std::vector<int32_t> begins(const std::vector<int32_t>& counts) {
  std::vector<int32_t> begin{0};
  for (const int32_t count : counts) begin.push_back(begin.back() + count);
  return begin;
}

/// Counts the messages of one rank that have been started and not been waited for.
class Watched : public MeetingComm {
 public:
  explicit Watched(Comm& comm)
      : MeetingComm(comm, [](Operation, const auto& transfer) { transfer(); }) {}
  int64_t most() const { return most_; }

 private:
  struct UnderWay : Pending::Work {
    UnderWay(Pending message, int64_t& count) : message_(std::move(message)), count_(count) {}
    void wait() override {
      message_.wait();
      --count_;
    }

   private:
    Pending message_;
    int64_t& count_;
  };
  Pending watch(Pending message) {
    most_ = std::max(most_, ++now_);
    return Pending(std::make_unique<UnderWay>(std::move(message), now_));
  }
  Pending do_isend(Tensor data, int to) override { return watch(comm_.isend(data, to)); }
  Pending do_irecv(Tensor data, int from) override { return watch(comm_.irecv(data, from)); }

  int64_t now_ = 0, most_ = 0;
};

void send_rows(const Sheet& sheet, Comm& comm, Found& found) {
  const Random random(sheet.seed(), "parts");
  std::vector<int32_t> out, in;
  for (int r = 0; r < comm.size(); ++r) {
    out.push_back(rows_between(random, comm.rank(), r));
    in.push_back(rows_between(random, r, comm.rank()));
  }
  const std::vector<int32_t> arriving = begins(in), leaving = begins(out);
  const std::vector<int32_t> heard = exchange_counts(comm, out);
  found.add(fmt::format("counts/rank {}", comm.rank()), {heard.begin(), heard.end()});

  Arena arena;
  const int64_t N = sheet.pick<int64_t>("columns", {3, 4});
  // Memory is for the worst case: more than what comes.
  const auto memory = [&](const char* name) {
    return arena.zeros(Mem::Comm, name, Dtype::F32, {5 * comm.size(), N});
  };
  const Tensor from = memory("leaving"), to = memory("arriving");
  fill(sheet, from, "rows", comm.rank());
  Watched watched(comm);
  all_to_all_rows(watched, to, arriving, from, leaving);
  found.add(fmt::format("rows/rank {}", comm.rank()), numbers(to));
  const OperationCount& call = watched.statistics()[Operation::AllToAll];
  found.add(fmt::format("rows/call of rank {}", comm.rank()),
            {static_cast<float>(call.calls), static_cast<float>(call.payload_bytes)});
  found.add(fmt::format("rows/messages of rank {} under way at once", comm.rank()),
            {static_cast<float>(watched.most())});
}

// ---- the exchange -------------------------------------------------------------------------------

struct Case {
  int ranks;
  int64_t ep;
  GptConfig gpt;
  int64_t B, capacity;
  Dtype dtype = Dtype::F32;

  std::string name() const {
    return fmt::format("{} ranks, --ep {}{}{}", ranks, ep, capacity > 0 ? ", full experts" : "",
                       is_narrow(dtype) ? ", BF16" : "");
  }
};

void travel(const Sheet& sheet, const Case& c, Comm& world, Found& found) {
  OneRank me(world);
  auto& [run, arena, ctx] = me;
  const int rank = world.rank();
  const ExchangeShape s(c.gpt, c.B, c.ep, c.capacity, c.dtype);
  Exchange exchange(arena, world, s, {});
  Log log(run, {.chapter = "22_expert_parallel", .gpt = c.gpt, .layout = {}, .predicted = {}},
          arena, ctx, &world);
  exchange.show(log);
  log.begin_step();
  exchange.begin_step();

  const Shape choices{c.B, s.own.T, s.own.k};
  const Choices own{.expert = arena.zeros(Mem::Activation, "expert", Dtype::I32, choices),
                    .weight = arena.zeros(Mem::Activation, "weight", Dtype::F32, choices),
                    .dweight = {}};
  const auto stream = static_cast<uint64_t>(rank);
  draw_choices(Random(sheet.seed() + 7919 * stream, "choices"), own.expert, c.gpt.experts.count);
  fill(sheet, own.weight, "weight", rank);
  const Exchanged x = exchange.acts(0, own);
  exchange.exchange_routing(ctx, x);
  const auto place = [&](const char* gate, const char* what) {
    return fmt::format("{}/rank {}: {}", gate, rank, what);
  };
  if (!is_narrow(c.dtype)) {  // the case of narrow tokens says nothing of choices
    found.add(place("chosen", "owners of tokens"), integers(x.sent.peer, x.sent.peer.size()));
    found.add(place("chosen", "begins of rows that leave"),
              integers(x.sent.rows.offsets, c.ep + 1));
    found.add(place("chosen", "origins of tokens"),
              integers(x.arrived.peer, x.arrived.peer.size()));
    found.add(place("chosen", "own experts"), integers(x.chosen.expert, x.chosen.expert.size()));
  }
  found.add(place("there", "weights of own experts"), numbers(x.chosen.weight));

  const Shape tokens{c.B, s.own.T, s.own.C};
  const Tensor wide = arena.zeros(Mem::Activation, "wide", Dtype::F32, tokens);
  fill(sheet, wide, "inp", rank);
  const Tensor inp = arena.zeros(Mem::Activation, "inp", c.dtype, tokens);
  ctx.kernels->cast(ctx, inp, wide);
  exchange.to_owners(ctx, x, x.inp, inp);
  found.add(place("there", "tokens"), numbers(x.inp));

  fill(sheet, x.out, "out", rank);
  const Tensor out = arena.zeros(Mem::Activation, "out", c.dtype, tokens);
  exchange.to_origins(ctx, x, out, x.out);
  found.add(fmt::format("back/rank {}", rank), numbers(out));

  log.end_step({.step = 0, .loss = 0, .grad_norm = 0, .lr = 0, .tokens = 0});
  exchange.report(log, world);
  const nlohmann::json report = log.extra()["expert_parallel"];
  found.predicted = fmt::format("{} bytes; rows that have come to each rank: {}",
                                report["sent"]["predicted"].dump(), report["arrived"].dump());
  found.sent = report["sent"]["measured"].get<int64_t>();
  const int64_t owner = rank % c.ep;
  for (int64_t i = 0; i < own.expert.size(); ++i)
    found.of_experts += own.expert.data<int32_t>()[i] / s.own.E != owner;
  if (is_narrow(c.dtype)) return;

  // A validation: one sequence, in memory that has the choices of more.
  log.begin_step();
  exchange.begin_step();
  const Choices one{.expert = own.expert.slice(c.B - 1, 1),
                    .weight = own.weight.slice(c.B - 1, 1),
                    .dweight = {}};
  const Exchanged y = exchange.acts(0, one);
  exchange.exchange_routing(ctx, y);
  log.end_step({.step = 1, .loss = 0, .grad_norm = 0, .lr = 0, .tokens = 0});
  exchange.report(log, world);
  const auto later = [&](const char* what) {
    return fmt::format("chosen/rank {}, then one sequence: {}", rank, what);
  };
  found.add(later("own experts"), integers(y.chosen.expert, y.chosen.expert.size()));
  found.add(later("choices of experts of others, by rank"),
            log.extra()["expert_parallel"]["rows"]["of_experts"].get<std::vector<float>>());
}

/// @param predicted gets what the report of each rank says: where, and that
void run_exchange(Sheet& sheet, const Case& c,
                  std::vector<std::pair<std::string, std::string>>& predicted) {
  const std::vector<Found> found =
      rows_of(sheet, c.ranks, [&](Comm& world, Found& f) { travel(sheet, c, world, f); });
  const int64_t k = c.gpt.experts.chosen;
  // Without the idea a row travels for each expert on another rank: choices, weights, the token and
  // the output.
  int64_t each = c.ranks * 4 * (c.ep - 1);
  for (size_t r = 0; r < found.size(); ++r) {
    predicted.emplace_back(fmt::format("{}, rank {}", c.name(), r), found[r].predicted);
    each += found[r].of_experts * (4 * (1 + 2 * k) + (size_of(c.dtype) + 4) * c.gpt.channels);
  }
  sheet.without_idea("sent", each);
  sheet.count("sent", sum_of(found, &Found::sent));
}

}  // namespace

void cases(Sheet& sheet) {
  for (const int ranks : {2, 4})
    sheet.run(fmt::format("unequal parts of {} ranks", ranks), [&] {
      rows_of(sheet, ranks, [&](Comm& comm, Found& f) { send_rows(sheet, comm, f); });
    });
  GptConfig gpt = preset("moe-nano");
  gpt.layers = 1;
  gpt.heads = gpt.kv_heads = 2;
  gpt.channels = sheet.pick<int64_t>("channels", {8, 12});
  gpt.seq_len = sheet.pick<int64_t>("tokens", {5, 6});
  gpt.experts = {.count = 8, .chosen = sheet.pick<int64_t>("taken", {3, 4})};
  std::vector<Case> all;
  for (const auto& [ranks, ep] : {std::pair<int, int64_t>{2, 2}, {4, 4}, {4, 2}})
    for (const int64_t capacity : {0, 2})
      all.push_back({.ranks = ranks, .ep = ep, .gpt = gpt, .B = 2, .capacity = capacity});
  all.push_back({.ranks = 2, .ep = 2, .gpt = gpt, .B = 2, .capacity = 0, .dtype = Dtype::BF16});
  std::vector<std::pair<std::string, std::string>> predicted;
  for (const Case& c : all) sheet.run(c.name(), [&] { run_exchange(sheet, c, predicted); });
  // A separate case: where the report is wrong, the bytes still count. It is right as a whole,
  // since a formula of F32 alone is right in all cases but one.
  sheet.run("the reports", [&] {
    for (const auto& [where, said] : predicted) sheet.text("formula/all: " + where, said);
  });
}

}  // namespace ladder::lab
