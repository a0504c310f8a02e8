// The linear layer through cuBLASLt: three orientations of one matrix product.
//
// The library takes matrices column by column, so a row-major tensor reads as its transpose. With
// that, out = inp w^T becomes out^T = w inp^T: the factors change places.
//
// Sums are FP32, in an order that the library chooses for each shape: the same shape has the same
// bits, and `leaves` plays no part.
//
// FP8 factors: from compute capability 8.9 on, tensor cores multiply them. Their scales are powers
// of two and go into alpha. cuBLASLt wants both factors K-major: the sum runs along rows in memory.
// In forward they lie so. In backward the weight is read from its transposed copy, and for the
// gradient of a weight both factors are read from theirs. Older GPUs cannot multiply FP8, and no
// GPU does where extents are no multiples of 16. Then factors are widened in scratch, as many at a
// time as fit. Each code is exact in 16 bits.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/fp8_factors.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/narrow.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// The front of Ctx::scratch is the library's; widened factors lie behind it.
constexpr int64_t kWorkspace = 32 << 20;

/// The library is told that pointers are multiples of this, or of less if they are not. Many are
/// multiples of more. But a slice of a tensor must get the same algorithm as the whole.
constexpr int64_t kPointerAlign = 16;

/// n sums of no terms.
__global__ void write_nothing(float* sums, int64_t n) {
  if (const int64_t i = thread_index(); i < n) sums[i] = -0.0F;
}

/// op(X) of a row-major X (rows, columns), seen by the library as (columns, rows).
struct Factor {
  Tensor x;
  int64_t rows, columns;
  bool transposed;  ///< whether the library is to transpose what it sees
};

/// D = alpha A B + beta D + bias. The library takes D (m, n) column by column. As a tensor it has n
/// rows of m elements, d_stride elements apart.
struct Product {
  int64_t m, n, k;
  Factor a, b;
  Tensor d;
  int64_t d_stride;
  Tensor bias;  ///< (m) or null
  float alpha = 1;
  float beta = 0;
  /// FP8: only tensor cores sum. Their sum loses up to 2^-13 of itself with every 32 products, so
  /// up to 1% over 2,560 channels. (The rounding of a code is up to 6%.) Sums over a batch are
  /// longer, so backward does not use it.
  bool fast_sums = false;
};

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return CUDA_R_32F;
    case Dtype::BF16: return CUDA_R_16BF;
    case Dtype::F16: return CUDA_R_16F;
    case Dtype::E4M3: return CUDA_R_8F_E4M3;
    case Dtype::E5M2: return CUDA_R_8F_E5M2;
    default: CHECK(false, "a product of a dtype that cuBLASLt does not get");
  }
}

using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Description = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// A row-major matrix, as the library sees it; rows are `stride` elements apart.
Layout layout(const Tensor& x, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  CHECK_CUDA(cublasLtMatrixLayoutCreate(&made, type_of(x.dtype), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), stride));
  return Layout(made);
}
Layout layout(const Factor& f) { return layout(f.x, f.rows, f.columns, f.columns); }

template <class Value>
void set(const Description& description, cublasLtMatmulDescAttributes_t which, Value value) {
  CHECK_CUDA(cublasLtMatmulDescSetAttribute(description.get(), which, &value, sizeof(value)));
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t which, Value value) {
  CHECK_CUDA(cublasLtMatmulPreferenceSetAttribute(preference.get(), which, &value, sizeof(value)));
}

/// CUBLAS_COMPUTE_32F: FP32 factors are not rounded to TF32. Tensor cores keep some 14 bits of a
/// sum of FP8 products. Without fast_sums the library adds this sum to one in FP32 after every few
/// products.
Description describe(const Product& p) {
  cublasLtMatmulDesc_t made = nullptr;
  CHECK_CUDA(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Description description(made);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (is_fp8(p.a.x.dtype)) set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{p.fast_sums});
  if (p.bias) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(p.bias.ptr));
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias.dtype));
  }
  return description;
}

/// The largest power of two up to kPointerAlign that all pointers are multiples of.
int64_t alignment(const Product& p) {
  int64_t align = kPointerAlign;
  for (const Tensor& x : {p.a.x, p.b.x, p.d, p.bias})
    while (reinterpret_cast<uintptr_t>(x.ptr) % static_cast<uintptr_t>(align) != 0) align /= 2;
  return align;
}

MatmulKey key_of(const Product& p) {
  const auto number = [](auto x) { return static_cast<int64_t>(x); };
  return {p.m,
          p.n,
          p.k,
          p.d_stride,
          number(p.a.x.dtype),
          number(p.b.x.dtype),
          number(p.d.dtype),
          number(p.a.transposed),
          number(p.b.transposed),
          number(static_cast<bool>(p.bias)),
          number(p.beta != 0) | number(p.fast_sums) << 1,
          alignment(p)};
}

/// What one call of the library needs.
struct Plan {
  Description description;
  Layout a, b, d;
};

/// The library's first proposal. It may split a sum only if it joins the parts in FP32: so the
/// output is rounded once.
cublasLtMatmulAlgo_t choose(const CudaDevice& device, const Product& p, const Plan& plan) {
  cublasLtMatmulPreference_t made = nullptr;
  CHECK_CUDA(cublasLtMatmulPreferenceCreate(&made));
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspace));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto align = static_cast<uint32_t>(alignment(p));
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(preference, which, align);
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      device.blas(), plan.description.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
      preference.get(), 1, &result, &found);
  CHECK(status == CUBLAS_STATUS_SUCCESS && found == 1,
        "no product ({}, {}) ({}, {}) of {} and {}: {}", p.m, p.k, p.k, p.n, to_string(p.a.x.shape),
        to_string(p.b.x.shape), cublasLtGetStatusString(status));
  return result.algo;
}

void check_places(const Product& p) {
  for (const Tensor& x : {p.a.x, p.b.x, p.d, p.bias})
    CHECK(!x || x.place != Place::Host, "a product with {} of the host", to_string(x.shape));
}

void multiply(const Ctx& ctx, const Product& p) {
  if (p.m == 0 || p.n == 0) return;
  check_places(p);
  CHECK(ctx.scratch.bytes() >= kWorkspace, "a product needs {} bytes of scratch, not {}",
        kWorkspace, ctx.scratch.bytes());
  CudaDevice& device = device_of(ctx);
  const Plan plan{.description = describe(p),
                  .a = layout(p.a),
                  .b = layout(p.b),
                  .d = layout(p.d, p.n, p.m, p.d_stride)};
  auto& chosen = device.matmul_algorithms();
  const MatmulKey key = key_of(p);
  auto at = chosen.find(key);
  if (at == chosen.end()) at = chosen.emplace(key, choose(device, p, plan)).first;
  CHECK_CUDA(cublasLtMatmul(device.blas(), plan.description.get(), &p.alpha, p.a.x.ptr,
                            plan.a.get(), p.b.x.ptr, plan.b.get(), &p.beta, p.d.ptr, plan.d.get(),
                            p.d.ptr, plan.d.get(), &at->second, ctx.scratch.ptr,
                            static_cast<size_t>(kWorkspace), device.compute()));
}

// ---- FP8 factors ---------------------------------------------------------------------------

/// Where widened weights do not fit into scratch, the result is computed in parts. The columns of a
/// part are a multiple of this.
constexpr int64_t kColumnGroup = 64;

/// The 16-bit type that FP8 factors are widened to: F16 if an operand has it, else BF16.
Dtype widened_dtype(const Tensor& a, const Tensor& b, const Tensor& d) {
  for (const Tensor& x : {a, b, d})
    if (x.dtype == Dtype::F16) return Dtype::F16;
  return Dtype::BF16;
}

/// The transposed copy of a matrix of codes. Null if there is none.
Tensor transposed_codes(const Tensor& x) {
  Tensor other = x;
  other.ptr = x.transposed;
  other.transposed = nullptr;
  other.shape = {x.dim(1), x.dim(0)};
  return other;
}

/// Whether tensor cores multiply FP8 factors a and b of d. The sum runs along rows of both.
bool on_units(const Ctx& ctx, const Tensor& a, const Tensor& b, const Tensor& d) {
  if (!is_fp8(a.dtype) || !is_fp8(b.dtype) || (a.dtype == Dtype::E5M2 && b.dtype == Dtype::E5M2))
    return false;
  bool fit = device_of(ctx).fp8_units();
  for (const Tensor& x : {a, b, d})
    fit = fit && x && x.dim(0) % kFp8Group == 0 && x.dim(1) % kFp8Group == 0 &&
          reinterpret_cast<uintptr_t>(x.ptr) % kFp8Group == 0;
  return fit;
}

/// The factor that undoes the scales of two tensors' codes. Scales do not change during a step. So
/// the host may read them before the device has come here.
float unscale(const Tensor& a, const Tensor& b) {
  return 1.0f / ((a.fp8 ? a.fp8->scale : 1.0f) * (b.fp8 ? b.fp8->scale : 1.0f));
}

/// How many rows of operands go into one product: all of them, or parts of about one size. A part's
/// widened factors fit into scratch beside `fixed` bytes.
int64_t rows_at_once(const Ctx& ctx, int64_t rows, int64_t fixed,
                     std::initializer_list<Tensor> xs) {
  int64_t row_bytes = 0;
  for (const Tensor& x : xs) row_bytes += is_fp8(x.dtype) ? 2 * x.dim(-1) : 0;
  if (row_bytes == 0 || rows == 0) return rows;
  const int64_t gaps = 256 * static_cast<int64_t>(xs.size());
  const int64_t fit = (ctx.scratch.bytes() - kWorkspace - fixed - gaps) / row_bytes;
  CHECK(fit > 0, "no scratch for a row of an FP8 product: {} bytes", ctx.scratch.bytes());
  return ceil_div(rows, ceil_div(rows, fit));
}

/// How many columns of the result go into one product: all of them, unless the widened w would take
/// more than half of the room. An MLP's weight does so from 1,449 channels on.
int64_t columns_at_once(const Ctx& ctx, int64_t columns, const Tensor& w) {
  if (!is_fp8(w.dtype) || w.size() == 0) return columns;
  const int64_t fit = (ctx.scratch.bytes() - kWorkspace) / 2 / (2 * w.size() / columns);
  CHECK(fit > 0, "no scratch for a column of an FP8 product: {} bytes", ctx.scratch.bytes());
  return std::min(columns, fit < kColumnGroup ? fit : fit / kColumnGroup * kColumnGroup);
}

Tensor as_matrix(const Tensor& x) { return x.view({x.rows(), x.dim(-1)}); }

/// out (rows,m) = inp (rows,k) times w or its transpose, + bias.
struct Linear {
  Tensor out, inp, w;
  bool transpose_w;
  Tensor bias;
};

/// Computes columns [begin, begin + count) of out. FP8 factors are widened, as many rows at a time
/// as fit.
void multiply_columns(const Ctx& ctx, const Linear& l, int64_t begin, int64_t count) {
  const Dtype dtype = widened_dtype(l.inp, l.w, l.out);
  const auto widened = [&](const Tensor& x, int64_t first, int64_t columns, int64_t& offset) {
    return is_fp8(x.dtype) ? widened_columns(ctx, x, first, columns, dtype, offset) : x;
  };
  int64_t offset = kWorkspace;
  const Tensor weight = l.transpose_w ? widened(l.w.slice(begin, count), 0, l.w.dim(1), offset)
                                      : widened(l.w, begin, count, offset);
  const int64_t rows = l.inp.dim(0), k = l.inp.dim(1);
  const int64_t at_once = rows_at_once(ctx, rows, offset - kWorkspace, {l.inp});
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t taken = std::min(at_once, rows - row);
    int64_t behind = offset;
    const Tensor part = widened(l.inp.slice(row, taken), 0, k, behind);
    Tensor d = l.out.slice(row, taken);
    d.ptr = static_cast<char*>(d.ptr) + begin * size_of(d.dtype);
    multiply(ctx, {.m = count,
                   .n = taken,
                   .k = k,
                   .a = {weight, weight.dim(0), weight.dim(1), l.transpose_w},
                   .b = {part, taken, k, false},
                   .d = d,
                   .d_stride = l.out.dim(1),
                   .bias = l.bias ? l.bias.slice(begin, count) : Tensor{},
                   .alpha = unscale(l.inp, l.w)});
  }
}

/// Multiplies FP8 on tensor cores if they can. Widened weights are taken in parts that fit.
void multiply_linear(const Ctx& ctx, const Linear& l) {
  const int64_t columns = l.out.dim(1), rows = l.inp.dim(0), k = l.inp.dim(1);
  if (const Tensor w = l.transpose_w ? l.w : transposed_codes(l.w); on_units(ctx, w, l.inp, l.out))
    return multiply(ctx, {.m = columns,
                          .n = rows,
                          .k = k,
                          .a = {w, columns, k, true},
                          .b = {l.inp, rows, k, false},
                          .d = l.out,
                          .d_stride = columns,
                          .bias = l.bias,
                          .alpha = unscale(l.inp, l.w),
                          .fast_sums = l.transpose_w});
  const int64_t at_once = columns_at_once(ctx, columns, l.w);
  for (int64_t begin = 0; begin < columns; begin += at_once)
    multiply_columns(ctx, l, begin, std::min(at_once, columns - begin));
}

}  // namespace

void matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves) {
  check_shapes(Op::matmul_forward, out, inp, w, bias, leaves);
  multiply_linear(ctx, {as_matrix(out), as_matrix(inp), w, true, bias});
}

void matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  check_shapes(Op::matmul_backward_input, dinp, dout, w, leaves);
  multiply_linear(ctx, {as_matrix(dinp), as_matrix(dout), w, false, Tensor{}});
}

/// dw^T (K,N) = inp^T dout. FP8 codes are read from their transposed copy if they have one: the
/// codes of other blocks may lie by now where the first copy lay. The finished sum is added once,
/// except where FP8 factors must be widened in parts: then each part's sum is.
///
/// Padding (Ctx::documents) is multiplied, too: there dout is 0. Leaving it out would cost more
/// than it saves. Counted for N 3072, K 768 and BF16, at 620 TFLOP/s and 4.3 TB/s (an H200): the
/// products of a token take 7.6 ns. A call for each row of 1,024 tokens, without its padding, would
/// read and write dw each time: 4.4 us, where the row's products take 7.8. To copy the tokens
/// together takes 3.6 ns a token, so it pays where a third of all is padding. Packed rows have 0.4
/// to 5%.
void matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp, Into into) {
  const Extents s = check_shapes(Op::matmul_backward_weight, dw, dout, inp);
  const Tensor d = as_matrix(dout), x = as_matrix(inp);
  const Dtype dtype = widened_dtype(dout, inp, dw);
  const int64_t rows = s.B * s.T;
  const bool units = on_units(ctx, transposed_codes(d), transposed_codes(x), dw);
  const int64_t at_once = units ? rows : rows_at_once(ctx, rows, 0, {d, x});
  if (rows == 0 && into == Into::Write)
    launch(ctx, write_nothing, grid_over<1>(dw.size()), kThreads, 0, device_data<float>(dw),
           dw.size());
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    int64_t offset = kWorkspace;
    const auto factor = [&](const Tensor& all, bool transposed) -> Factor {
      const Tensor other = transposed_codes(all);
      const auto made = [&] {
        if (units) return other;
        if (other) return widened_columns(ctx, other, row, count, dtype, offset);
        const Tensor part = all.slice(row, count);
        return is_fp8(part.dtype) ? widened_columns(ctx, part, 0, part.dim(1), dtype, offset)
                                  : part;
      }();
      return {made, made.dim(0), made.dim(1), transposed != static_cast<bool>(other)};
    };
    const Factor b = factor(d, true), a = factor(x, false);
    multiply(ctx, {.m = s.K,
                   .n = s.N,
                   .k = count,
                   .a = a,
                   .b = b,
                   .d = dw,
                   .d_stride = s.K,
                   .bias = Tensor{},
                   .alpha = unscale(dout, inp),
                   .beta = into == Into::Add || row > 0 ? 1.0f : 0.0f});
  }
}

}  // namespace ladder::LADDER_CUDA
