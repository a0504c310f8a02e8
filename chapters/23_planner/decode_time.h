// Decoding (chapter 31): how many tokens a second one device writes with a model.
//
// A pass adds a token to each of B texts. It reads the weights once, whatever B is, and of each
// text the cache: keys and values of its t tokens, 2 L t NKV HS numbers. It multiplies B rows with
// each matrix. So with few texts a pass takes as long as the memory needs for these bytes, and more
// texts are nearly free until their caches, or the products, take longer than the weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/23_planner/device.h"
#include "chapters/23_planner/flops.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/plan_report.h"
#include "chapters/31_generate/cache.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "kernels/math.h"

namespace ladder::planner {

inline Dtype decode_dtype(const Job& job) {
  return job.precision.narrow() ? Dtype::BF16 : Dtype::F32;
}

/// Elements that a pass of B rows reads: not the tables of tokens and positions, of which it reads
/// B rows, unless the head is the table of tokens. Of experts those that a row chose; rows are
/// assumed to choose evenly, independently of each other.
inline double elements_read(const GptConfig& gpt, int64_t B) {
  const int64_t positions = gpt.position == Position::Learned ? gpt.positions : 0;
  const int64_t tables = gpt.channels * (positions + (gpt.tied_head ? 0 : gpt.vocab));
  auto elements = static_cast<double>(ParamLayout(gpt).live() - tables);
  if (!gpt.has_experts()) return elements;
  const auto E = static_cast<double>(gpt.experts.count),
             k = static_cast<double>(gpt.experts.chosen);
  const double idle = E * math::pow(1 - k / E, static_cast<double>(B));
  return elements - static_cast<double>(gpt.layers * gpt.expert_matrices()) * idle;
}

/// A pass that adds a token to each of B texts of t tokens.
struct DecodePass {
  int64_t texts;
  double weights, cache;   ///< bytes that are read
  double memory, compute;  ///< seconds, if there were nothing else

  double seconds() const { return std::max(memory, compute); }
  double rate() const { return static_cast<double>(texts) / seconds(); }
};

inline DecodePass decode_pass(const Job& job, const Device& device, int64_t B, int64_t t) {
  GptConfig gpt = job.gpt;
  gpt.seq_len = t;
  const auto [blocks, head, attention] = forward_flops(gpt);
  const double peak = device.peak(job.precision.name), texts = static_cast<double>(B);
  const Dtype dtype = decode_dtype(job);
  const double weights = elements_read(gpt, B) * static_cast<double>(size_of(dtype)),
               cache = static_cast<double>(KvCache::bytes(gpt, B, t, dtype)),
               work = (blocks + head) / device.products + attention / device.attention;
  return {.texts = B,
          .weights = weights,
          .cache = cache,
          .memory = device.memory_seconds(weights + cache),
          .compute = texts * work / peak};
}

/// Bytes of the model, and of the caches of B windows.
inline int64_t decode_bytes(const Job& job, int64_t B) {
  const Dtype dtype = decode_dtype(job);
  return size_of(dtype) * ParamLayout(job.gpt).live() +
         KvCache::bytes(job.gpt, B, job.gpt.seq_len, dtype);
}

/// What one device writes: a row for each power of two of texts that fit.
struct DecodeRow {
  int64_t bytes;
  DecodePass half, whole;  ///< of texts that have half a window, and a whole one
};

/// @throws UserError if not even one text fits
inline std::vector<DecodeRow> decode_rows(const Job& job, const Device& device) {
  if (job.precision.fp8())
    throw UserError(
        "--decode with --precision fp8; legal are those of chapter 31: fp32, bf16, fp16");
  if (decode_bytes(job, 1) > device.room())
    throw UserError("--decode: the weights and the cache of one text take {}, and there are {}",
                    size_text(decode_bytes(job, 1)), room_text(device));
  constexpr int64_t kMostTexts = 4096;
  const int64_t T = job.gpt.seq_len;
  std::vector<DecodeRow> rows;
  for (int64_t B = 1; B <= kMostTexts && decode_bytes(job, B) <= device.room(); B *= 2)
    rows.push_back({decode_bytes(job, B), decode_pass(job, device, B, std::max<int64_t>(1, T / 2)),
                    decode_pass(job, device, B, T)});
  return rows;
}

/// @throws UserError as decode_rows()
inline std::string decode_text(const Job& job, const Device& device) {
  const int64_t weights = decode_bytes(job, 0);
  std::string text = fmt::format(
      "{}, {}, one {}: weights {}, the cache of {} tokens {}\n{:>6} {:>10} {:>11} {:>24} {:>15}\n",
      job.gpt.name, job.precision.name, device.name, size_text(weights), job.gpt.seq_len,
      size_text(decode_bytes(job, 1) - weights), "texts", "bytes", "ms a pass",
      "tokens/s, half a window", "and a whole one");
  for (const auto& [bytes, half, whole] : decode_rows(job, device))
    text += fmt::format("{:>6} {:>10} {:>11.3g} {:>24.0f} {:>15.0f}{}\n", half.texts,
                        size_text(bytes), 1e3 * half.seconds(), half.rate(), whole.rate(),
                        half.compute > half.memory ? "  products decide" : "");
  return text;
}

}  // namespace ladder::planner
