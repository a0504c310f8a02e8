// Matrix products by plain loops, with the interface of cuBLASLt.
#include <algorithm>
#include <array>
#include <cstring>
#include <cublasLt.h>
#include <vector>

#include "kernels/narrow.h"

namespace ladder::on_cpu {

struct LtContext {};
struct LtProduct {
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
};
struct LtMatrix {
  cudaDataType_t type;
  int64_t rows, columns, stride;
};
struct LtPreference {
  std::array<uint32_t, 4> alignment = {256, 256, 256, 256};  ///< of A, B, C, D
};

namespace {

/// How much of each end of the workspace is overwritten. If something else lies there, it shows.
constexpr size_t kScribble = 4096;
/// The library needs its workspace aligned to this.
constexpr uint32_t kWorkspaceAlign = 256;

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

float read(cudaDataType_t type, const void* from, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(from)[i];
  if (is_fp8(type))
    return widen(type == CUDA_R_8F_E4M3 ? kE4M3 : kE5M2, static_cast<const uint8_t*>(from)[i]);
  return widen(type == CUDA_R_16F ? kF16 : kBf16, static_cast<const uint16_t*>(from)[i]);
}

void write(cudaDataType_t type, void* to, int64_t i, float x) {
  if (type == CUDA_R_32F)
    static_cast<float*>(to)[i] = x;
  else
    static_cast<uint16_t*>(to)[i] =
        static_cast<uint16_t>(narrow(type == CUDA_R_16F ? kF16 : kBf16, x, Overflow::ToInfinity));
}

float rounded(cudaDataType_t type, float x) {
  float result = 0;  // 4 bytes: enough for each type
  write(type, &result, 0, x);
  return read(type, &result, 0);
}

/// A matrix of floats, stored by columns.
struct Floats2d {
  int64_t rows, columns;
  std::vector<float> at;

  Floats2d(int64_t rows_, int64_t columns_)
      : rows(rows_), columns(columns_), at(static_cast<size_t>(rows_ * columns_)) {}
  float* column(int64_t j) { return at.data() + j * rows; }
};

/// op(X), widened.
Floats2d factor(const void* from, const LtMatrix& x, cublasOperation_t transpose) {
  const bool transposed = transpose == CUBLAS_OP_T;
  Floats2d result(transposed ? x.columns : x.rows, transposed ? x.rows : x.columns);
  for (int64_t j = 0; j < x.columns; ++j)
    for (int64_t i = 0; i < x.rows; ++i) {
      float* to = transposed ? result.column(i) + j : result.column(j) + i;
      *to = read(x.type, from, j * x.stride + i);
    }
  return result;
}

Floats2d multiply(Floats2d a, Floats2d b) {
  Floats2d d(a.rows, b.columns);
  for (int64_t j = 0; j < d.columns; ++j) {
    float* to = d.column(j);
    for (int64_t k = 0; k < a.columns; ++k) {
      const float* from = a.column(k);
      const float scale = b.column(j)[k];
      for (int64_t i = 0; i < d.rows; ++i) to[i] += from[i] * scale;
    }
  }
  return d;
}

/// The alignments of A, B, C and D in one number.
uint64_t packed(const std::array<uint32_t, 4>& alignment) {
  uint64_t all = 0;
  for (uint32_t bytes : alignment) all = all << 16 | bytes;
  return all;
}

/// Whether the four pointers have the alignments that packed() holds.
bool aligned(const std::array<const void*, 4>& pointers, uint64_t alignments) {
  return std::all_of(pointers.rbegin(), pointers.rend(), [&](const void* p) {
    const uint64_t bytes = alignments & 0xFFFF;
    alignments >>= 16;
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
  });
}

/// Whether the library has a kernel that adds the bias to the sum. If not, it adds the bias to the
/// rounded product. That happens if lines of a 16-bit matrix are no multiples of 16 bytes.
bool fused(const LtMatrix& a, const LtMatrix& b, const LtMatrix& d, uint64_t alignments) {
  const std::array<int64_t, 4> lines = {a.rows, b.rows, d.rows, d.stride};
  bool whole = true;
  for (int64_t line : lines) whole = whole && line % 8 == 0;
  for (; alignments != 0; alignments >>= 16) whole = whole && (alignments & 0xFFFF) >= 16;
  return whole;
}

cublasLtMatmulAlgo_t algorithm_for(const LtProduct& product, const LtMatrix& a, const LtMatrix& b,
                                   const LtMatrix& d, uint64_t alignments) {
  const auto number = [](auto x) { return static_cast<uint64_t>(x); };
  return {{number(a.type), number(b.type), number(d.type), number(d.rows), number(d.columns),
           number(product.transpose_a == CUBLAS_OP_T ? a.rows : a.columns),
           number(product.transpose_a) << 1 | number(product.transpose_b), alignments}};
}

bool fit(const LtProduct& product, const LtMatrix& a, const LtMatrix& b, const LtMatrix& d) {
  const bool turn_a = product.transpose_a == CUBLAS_OP_T;
  const bool turn_b = product.transpose_b == CUBLAS_OP_T;
  if (is_fp8(a.type) || is_fp8(b.type)) {
    // FP8 times FP8, but not E5M2 times E5M2; along rows in memory; multiples of 16; no FP32 bias.
    bool fp8 = is_fp8(a.type) && is_fp8(b.type) && (a.type != b.type || a.type == CUDA_R_8F_E4M3) &&
               !is_fp8(d.type) && turn_a && !turn_b;
    for (const LtMatrix& x : {a, b, d})
      fp8 = fp8 && x.rows % 16 == 0 && x.columns % 16 == 0 && x.stride % 16 == 0;
    if (!fp8 || (product.epilogue == CUBLASLT_EPILOGUE_BIAS && d.type == CUDA_R_32F)) return false;
  }
  // What the library has: factors of one type, a result of that type or of FP32, a bias of the
  // result's type.
  const bool types =
      is_fp8(a.type) || (a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F));
  const bool bias = product.epilogue != CUBLASLT_EPILOGUE_BIAS || product.bias_type == d.type;
  return types && bias && (turn_a ? a.columns : a.rows) == d.rows &&
         (turn_b ? b.rows : b.columns) == d.columns &&
         (turn_a ? a.rows : a.columns) == (turn_b ? b.columns : b.rows);
}

template <class T>
void assign(T& to, const void* value, size_t bytes) {
  CHECK(bytes == sizeof(T), "an attribute of {} bytes, not {}", bytes, sizeof(T));
  std::memcpy(&to, value, bytes);
}

template <class T, class... Args>
cublasStatus_t create(T** object, Args... args) {
  *object = new T{args...};
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

void scribble(void* workspace, size_t bytes) {
  const size_t end = std::min(bytes, kScribble);
  std::memset(workspace, 0xFF, end);
  std::memset(static_cast<std::byte*>(workspace) + bytes - end, 0xFF, end);
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_INVALID_VALUE: return "invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
  }
  return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return create(product);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return destroy(product); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: assign(product->transpose_a, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: assign(product->transpose_b, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: assign(product->epilogue, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: assign(product->bias, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: assign(product->bias_type, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: {
      int8_t fast = 0;
      assign(fast, value, bytes);  // sums here are FP32
      break;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matrix, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return create(matrix, type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  return destroy(matrix);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, size_t bytes) {
  auto& alignment = preference->alignment;
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: assign(alignment[0], value, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: assign(alignment[1], value, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: assign(alignment[2], value, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: assign(alignment[3], value, bytes); break;
    default: break;  // there is one algorithm
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (wanted < 1 || !fit(*product, *a, *b, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = 1;
  results[0] = {.algo = algorithm_for(*product, *a, *b, *d, packed(preference->alignment)),
                .workspaceSize = 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t) {
  if (!fit(*product, *a_layout, *b_layout, *d_layout)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint64_t alignments = algo->data[7];
  const auto right = algorithm_for(*product, *a_layout, *b_layout, *d_layout, alignments);
  if (!std::ranges::equal(algo->data, right.data) || !aligned({a, b, c, d}, alignments) ||
      reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlign != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  scribble(workspace, workspace_bytes);

  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  Floats2d sum = multiply(factor(a, *a_layout, product->transpose_a),
                          factor(b, *b_layout, product->transpose_b));
  const bool biased = product->epilogue == CUBLASLT_EPILOGUE_BIAS;
  const bool apart = biased && !fused(*a_layout, *b_layout, *d_layout, alignments);
  for (int64_t j = 0; j < sum.columns; ++j)
    for (int64_t i = 0; i < sum.rows; ++i) {
      float x = scale * sum.column(j)[i];
      if (keep != 0) x += keep * read(c_layout->type, c, j * c_layout->stride + i);
      if (apart) x = rounded(d_layout->type, x);
      if (biased) x += read(product->bias_type, product->bias, i);
      write(d_layout->type, d, j * d_layout->stride + i, x);
    }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace ladder::on_cpu
