#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "include/cublasLt.h"

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  int32_t count = 1;   // of matrices
  int64_t offset = 0;  // elements from one matrix to the next
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t schemes = 7, a = 256, b = 256, c = 256, d = 256;  // the rest are alignments
};

namespace {

using emulator::cublas_lt;
using Layout = cublasLtMatrixLayoutOpaque_t;

// The content of a cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t workspace;
  uint32_t a, b, c, d;  // alignments
  int place;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

struct Matrix {
  Layout layout;
  void* data;

  // Matrix i of the batch.
  Matrix at(int64_t i) const { return {layout, static_cast<std::byte*>(data) + i * step()}; }
  int64_t step() const { return layout.offset * (layout.type == CUDA_R_32F ? 4 : 2); }
  float get(int64_t i, int64_t j) const {
    const int64_t at = i + j * layout.leading;
    return layout.type == CUDA_R_32F
               ? static_cast<const float*>(data)[at]
               : __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
  void put(int64_t i, int64_t j, float x) const {
    const int64_t at = i + j * layout.leading;
    if (layout.type == CUDA_R_32F) {
      static_cast<float*>(data)[at] = x;
    } else {
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(x);
    }
  }
  // op() of the matrix, row by row, for speed.
  std::vector<float> rows(bool transposed) const {
    std::vector<float> all;
    all.reserve(static_cast<size_t>(layout.rows * layout.columns));
    const int64_t I = transposed ? layout.columns : layout.rows;
    const int64_t J = transposed ? layout.rows : layout.columns;
    for (int64_t i = 0; i < I; ++i) {
      for (int64_t j = 0; j < J; ++j) all.push_back(transposed ? get(j, i) : get(i, j));
    }
    return all;
  }
};

struct Product {
  Matrix a, b, c, d, bias;
  bool a_transposed, b_transposed;
  float alpha, beta;
  void* workspace;
  size_t workspace_bytes;

  void run() const {
    std::memset(workspace, 0xff, workspace_bytes);
    for (int64_t i = 0; i < d.layout.count; ++i) {
      Product one = *this;
      one.a = a.at(i), one.b = b.at(i), one.c = c.at(i), one.d = d.at(i);
      one.multiply();
    }
  }

  void multiply() const {
    const int64_t K = a_transposed ? a.layout.rows : a.layout.columns;
    const std::vector<float> left = a.rows(a_transposed), right = b.rows(!b_transposed);
    for (int64_t i = 0; i < d.layout.rows; ++i) {
      for (int64_t j = 0; j < d.layout.columns; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < K; ++k) {
          sum += left[static_cast<size_t>(i * K + k)] * right[static_cast<size_t>(j * K + k)];
        }
        float result = alpha * sum;
        if (beta != 0) result += beta * c.get(i, j);
        if (bias.data) result += bias.get(i, 0);
        d.put(i, j, result);
      }
    }
  }
};

bool aligned(const void* data, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}
// All matrices of a batch.
bool aligned(const Matrix& m, uint32_t bytes) {
  return aligned(m.data, bytes) && (m.layout.count == 1 || m.step() % bytes == 0);
}

bool fits(const Layout& l) { return l.rows > 0 && l.columns > 0 && l.leading >= l.rows; }

// Whether extents and types match.
bool consistent(const cublasLtMatmulDescOpaque_t& p, const Layout& a, const Layout& b,
                const Layout& c, const Layout& d) {
  const int64_t M = p.a == CUBLAS_OP_T ? a.columns : a.rows;
  const int64_t K = p.a == CUBLAS_OP_T ? a.rows : a.columns;
  const bool extents = M == d.rows && (p.b == CUBLAS_OP_T ? b.columns : b.rows) == K &&
                       (p.b == CUBLAS_OP_T ? b.rows : b.columns) == d.columns && c.rows == d.rows &&
                       c.columns == d.columns;
  const bool types =
      a.type == b.type && c.type == d.type && (a.type != CUDA_R_32F || c.type == a.type);
  const bool counts = a.count == d.count && b.count == d.count && c.count == d.count;
  return extents && types && counts && fits(a) && fits(b) && fits(c) && fits(d);
}

template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class... Values>
cublasStatus_t make(T** made, const Values&... values) {
  *made = new T{values...};
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(T* made) {
  delete made;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

namespace emulator {
CublasLt& cublas_lt() {
  static CublasLt state;
  return state;
}
}  // namespace emulator

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "another error";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lt) {
  int device = 0;
  cudaGetDevice(&device);
  return make(lt, device);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt) { return destroy(lt); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return make(d);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return destroy(d); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(d->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(d->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(d->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return make(l, type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return destroy(l); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(l->count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(l->offset, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) { return make(p); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return destroy(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(p->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(p->a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(p->b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(p->c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p->d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

// Asks for all of the allowed workspace, and writes it.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  ++cublas_lt().heuristics;
  *count = 0;
  if (wanted < 1 || !consistent(*description, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!cublas_lt().knows_algorithms) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool reproducible = (p->schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0;
  if (!reproducible) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (*count = 0; *count < std::min(wanted, 2); ++*count) {
    const Algorithm algorithm{p->workspace, p->a, p->b, p->c, p->d, *count};
    std::memcpy(&found[*count].algo, &algorithm, sizeof algorithm);
    found[*count].workspaceSize = algorithm.workspace;
    found[*count].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Algorithm chosen;
  std::memcpy(&chosen, algo, sizeof chosen);
  const Matrix left{*a_layout, const_cast<void*>(a)}, right{*b_layout, const_cast<void*>(b)};
  const Matrix before{*c_layout, const_cast<void*>(c)}, result{*d_layout, d};
  int current = 0;
  cudaGetDevice(&current);
  const bool one_device = lt && lt->device == current && emulator::device_of(stream) == current;
  if (!one_device || !consistent(*description, *a_layout, *b_layout, *c_layout, *d_layout) ||
      chosen.workspace > workspace_bytes || !aligned(workspace, 16) || !aligned(left, chosen.a) ||
      !aligned(right, chosen.b) || !aligned(before, chosen.c) || !aligned(result, chosen.d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool biased = description->epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (biased && (!description->bias || !aligned(description->bias, 16) || d_layout->count > 1)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Layout bias_layout{d_layout->type, d_layout->rows, 1, d_layout->rows};
  const Product product{
      .a = left,
      .b = right,
      .c = before,
      .d = result,
      .bias = {bias_layout, biased ? const_cast<void*>(description->bias) : nullptr},
      .a_transposed = description->a == CUBLAS_OP_T,
      .b_transposed = description->b == CUBLAS_OP_T,
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta),
      .workspace = workspace,
      .workspace_bytes = chosen.workspace};
  emulator::enqueue(stream, [product, place = chosen.place] {
    const double longer = cublas_lt().second_takes_longer * (place == 1 ? 1 : -1);
    if (longer > 0) std::this_thread::sleep_for(std::chrono::duration<double>(longer));
    cublas_lt().last_algorithm = place;
    product.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}
