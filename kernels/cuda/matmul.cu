// The linear layer through cuBLASLt: three orientations of one matrix product.
//
// The library takes matrices column by column, so a row-major tensor reads as its transpose. With
// that, out = inp w^T becomes out^T = w inp^T: the factors change places.
//
// Sums are FP32, in an order that the library chooses for each shape: the same shape has the same
// bits, and `leaves` plays no part. FP8 factors are widened: each code is exact in 16 bits, and
// their scales, powers of two, go into alpha.
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// The front of Ctx::scratch is the library's; widened factors lie behind it.
constexpr int64_t kWorkspace = 32 << 20;

/// Pointers of operands are multiples of this, or of less if they say so. Fixed, although many
/// are multiples of more: a slice of a tensor must get the same algorithm as the whole.
constexpr int64_t kPointerAlign = 16;

/// op(X) of a row-major X (rows, columns), seen by the library as (columns, rows).
struct Factor {
  Tensor x;
  int64_t rows, columns;
  bool transposed;  ///< whether the library is to transpose what it sees
};

/// D = alpha A B + beta D + bias, D (m, n) column by column: n rows of m as tensors lie.
struct Product {
  int64_t m, n, k;
  Factor a, b;
  Tensor d;
  Tensor bias;  ///< (m) or null
  float alpha = 1;
  float beta = 0;
};

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return CUDA_R_32F;
    case Dtype::BF16: return CUDA_R_16BF;
    case Dtype::F16: return CUDA_R_16F;
    default: CHECK(false, "a product of a dtype that cuBLASLt does not get");
  }
}

using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Description = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// A row-major matrix, as the library sees it.
Layout layout(const Tensor& x, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  CHECK_CUDA(cublasLtMatrixLayoutCreate(&made, type_of(x.dtype), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), columns));
  return Layout(made);
}

template <class Value>
void set(const Description& description, cublasLtMatmulDescAttributes_t which, Value value) {
  CHECK_CUDA(cublasLtMatmulDescSetAttribute(description.get(), which, &value, sizeof(value)));
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t which, Value value) {
  CHECK_CUDA(cublasLtMatmulPreferenceSetAttribute(preference.get(), which, &value, sizeof(value)));
}

/// CUBLAS_COMPUTE_32F: FP32 factors are not rounded to TF32.
Description describe(const Product& p) {
  cublasLtMatmulDesc_t made = nullptr;
  CHECK_CUDA(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Description description(made);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
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
          number(p.a.x.dtype),
          number(p.b.x.dtype),
          number(p.d.dtype),
          number(p.a.transposed),
          number(p.b.transposed),
          number(static_cast<bool>(p.bias)),
          number(p.beta != 0),
          alignment(p)};
}

/// What one call of the library needs.
struct Plan {
  Description description;
  Layout a, b, d;
};

/// The library's first proposal. Split sums only through FP32: the output is rounded once.
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
                  .a = layout(p.a.x, p.a.rows, p.a.columns),
                  .b = layout(p.b.x, p.b.rows, p.b.columns),
                  .d = layout(p.d, p.n, p.m)};
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

constexpr int kThreads = 256;
/// Codes of one thread: 16 bytes.
constexpr int kCodes = 16;

/// out = the values of n codes, without their scale. out T (n); inp (n)
template <class T, class Code>
__global__ void widen_kernel(T* out, const Code* inp, int64_t n) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCodes;
  for (int64_t i = begin; i < begin + kCodes && i < n; ++i)
    out[i] = from_float<T>(value_of(inp[i]));
}

/// The 16-bit type that FP8 factors become: that of the factor or the result beside them.
Dtype widened_dtype(const Tensor& a, const Tensor& b, const Tensor& d) {
  for (const Tensor& x : {a, b, d})
    if (x.dtype == Dtype::F16) return Dtype::F16;
  return Dtype::BF16;
}

int64_t widened_bytes(const Tensor& x) {
  return is_fp8(x.dtype) ? round_up<int64_t>(2 * x.size(), 256) : 0;
}

/// x itself, or its codes widened into scratch[offset..), which moves on.
Tensor widened(const Ctx& ctx, const Tensor& x, Dtype dtype, int64_t& offset) {
  if (!is_fp8(x.dtype)) return x;
  Tensor wide = x;
  wide.dtype = dtype;
  wide.fp8 = nullptr;
  wide.ptr = static_cast<char*>(ctx.scratch.ptr) + offset;
  offset += widened_bytes(x);
  CHECK(offset <= ctx.scratch.bytes(), "{} in FP8 needs {} bytes of scratch, not {}",
        to_string(x.shape), offset, ctx.scratch.bytes());
  const Grid grid{.x = ceil_div(x.size(), kThreads * kCodes)};
  const auto start = [&]<class T, class Code>(Type<T>, Type<Code>) {
    launch(ctx, widen_kernel<T, Code>, grid, kThreads, 0, device_data<T>(wide),
           device_data<Code>(x), x.size());
  };
  const auto start_from = [&]<class T>(Type<T> to) {
    return x.dtype == Dtype::E4M3 ? start(to, Type<E4m3>{}) : start(to, Type<E5m2>{});
  };
  dtype == Dtype::F16 ? start_from(Type<__half>{}) : start_from(Type<__nv_bfloat16>{});
  return wide;
}

/// What the product of two tensors' codes must be multiplied by. The scales of a step stand still
/// while it runs, so the host may read them before the device has come here.
float unscale(const Tensor& a, const Tensor& b) {
  return 1.0f / ((a.fp8 ? a.fp8->scale : 1.0f) * (b.fp8 ? b.fp8->scale : 1.0f));
}

/// How many rows of operands go into one product, so that what widens fits into scratch beside
/// `fixed` bytes: all of them, unless they are FP8 and many.
int64_t rows_at_once(const Ctx& ctx, int64_t rows, int64_t fixed,
                     std::initializer_list<Tensor> xs) {
  int64_t row_bytes = 0;
  for (const Tensor& x : xs) row_bytes += is_fp8(x.dtype) ? 2 * x.dim(-1) : 0;
  if (row_bytes == 0) return rows;
  const int64_t gaps = 256 * static_cast<int64_t>(xs.size());
  const int64_t fit = (ctx.scratch.bytes() - kWorkspace - fixed - gaps) / row_bytes;
  CHECK(fit > 0, "no scratch for one row of an FP8 product: {} bytes", ctx.scratch.bytes());
  return std::min(rows, fit);
}

Tensor as_matrix(const Tensor& x) { return x.view({x.rows(), x.dim(-1)}); }

/// out (rows,m) = inp (rows,k) times w or its transpose, + bias, in as many parts as fit.
void multiply_rows(const Ctx& ctx, const Tensor& out, const Tensor& inp, const Tensor& w,
                   bool transpose_w, const Tensor& bias) {
  const Dtype dtype = widened_dtype(inp, w, out);
  int64_t offset = kWorkspace;
  const Tensor weight = widened(ctx, w, dtype, offset);
  const int64_t rows = inp.dim(0), at_once = rows_at_once(ctx, rows, widened_bytes(w), {inp});
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    int64_t behind = offset;
    const Tensor part = widened(ctx, inp.slice(row, count), dtype, behind);
    multiply(ctx, {.m = out.dim(1),
                   .n = count,
                   .k = inp.dim(1),
                   .a = {weight, w.dim(0), w.dim(1), transpose_w},
                   .b = {part, count, inp.dim(1), false},
                   .d = out.slice(row, count),
                   .bias = bias,
                   .alpha = unscale(inp, w)});
  }
}

}  // namespace

void matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves) {
  (void)check_matmul_forward(out, inp, w, bias, leaves);
  multiply_rows(ctx, as_matrix(out), as_matrix(inp), w, true, bias);
}

void matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  (void)check_matmul_backward_input(dinp, dout, w, leaves);
  multiply_rows(ctx, as_matrix(dinp), as_matrix(dout), w, false, Tensor{});
}

/// dw^T (K,N) = inp^T dout. The finished sum is added once, except where FP8 factors must be
/// widened in parts: then each part's sum is.
void matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp, Into into) {
  const auto [B, T, N, K] = check_matmul_backward_weight(dw, dout, inp);
  const Tensor d = as_matrix(dout), x = as_matrix(inp);
  const Dtype dtype = widened_dtype(dout, inp, dw);
  const int64_t rows = B * T, at_once = rows_at_once(ctx, rows, 0, {d, x});
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    int64_t offset = kWorkspace;
    const Tensor d_part = widened(ctx, d.slice(row, count), dtype, offset);
    const Tensor x_part = widened(ctx, x.slice(row, count), dtype, offset);
    multiply(ctx, {.m = K,
                   .n = N,
                   .k = count,
                   .a = {x_part, count, K, false},
                   .b = {d_part, count, N, true},
                   .d = dw,
                   .bias = Tensor{},
                   .alpha = unscale(dout, inp),
                   .beta = into == Into::Add || row > 0 ? 1.0f : 0.0f});
  }
}

}  // namespace ladder::LADDER_CUDA
