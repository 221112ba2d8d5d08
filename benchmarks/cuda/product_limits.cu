// Times the matrix products of GPT-2 124M (32 rows of 1024 tokens) on a GPU, without Spool: by the
// first eight algorithms that cuBLASLt's heuristics name, under two masks of reduction schemes, the
// first of which is Spool's; and products with epilogues, which gain only if they cost less than
// the pass over memory that they save.
//
//   nvcc -O2 -std=c++17 -arch=sm_90 product_limits.cu -lcublasLt -o limits && ./limits

#include <cublasLt.h>

#include "timing.cuh"

static cublasLtHandle_t lt;
static void* workspace;
constexpr size_t workspace_bytes = size_t{32} << 20;

// As Spool asks: row-major c (M, N) = a b, so column-major c^T = b^T a^T.
struct Form {
  const char* name;
  int64_t M, N, K;
  bool a_t, b_t, f32_out, accumulate;
  cublasLtEpilogue_t epilogue;
};

struct Product {
  cublasLtMatmulDesc_t d;
  cublasLtMatrixLayout_t a, b, c;
  Product(const Form& f, void* bias, void* aux) {
    CHECK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t ta = f.b_t ? CUBLAS_OP_T : CUBLAS_OP_N,
                            tb = f.a_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
    set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, f.epilogue);
    constexpr int gradient_of_bias = 16;  // the bit of each epilogue ..._BGRAD
    if (f.epilogue & (CUBLASLT_EPILOGUE_BIAS | gradient_of_bias | CUBLASLT_EPILOGUE_BGRADA |
                      CUBLASLT_EPILOGUE_BGRADB)) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (f.epilogue & (CUBLASLT_EPILOGUE_GELU_AUX | CUBLASLT_EPILOGUE_DGELU) &
        ~CUBLASLT_EPILOGUE_GELU) {
      const int64_t ld = f.N;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    }
    layout(a, CUDA_R_16BF, f.b_t ? f.N : f.K, f.b_t ? f.K : f.N);
    layout(b, CUDA_R_16BF, f.a_t ? f.K : f.M, f.a_t ? f.M : f.K);
    layout(c, f.f32_out ? CUDA_R_32F : CUDA_R_16BF, f.M, f.N);
  }
  ~Product() {
    cublasLtMatrixLayoutDestroy(a), cublasLtMatrixLayoutDestroy(b), cublasLtMatrixLayoutDestroy(c);
    cublasLtMatmulDescDestroy(d);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t at, const T& v) {
    CHECK(cublasLtMatmulDescSetAttribute(d, at, &v, sizeof v));
  }
  static void layout(cublasLtMatrixLayout_t& l, cudaDataType_t t, int64_t rows, int64_t columns) {
    CHECK(cublasLtMatrixLayoutCreate(&l, t, uint64_t(columns), uint64_t(rows), columns));
  }
};

static int get(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t what) {
  uint32_t v = 0;
  size_t n = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algo, what, &v, sizeof v, &n) ==
                 CUBLAS_STATUS_SUCCESS
             ? int(v)
             : -1;
}

// The algorithms that the heuristics name for a product.
struct Named {
  cublasLtMatmulHeuristicResult_t all[8] = {};
  int count = 0;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};

static Named algorithms_of(const Product& p, uint32_t mask) {
  Named named;
  cublasLtMatmulPreference_t preference;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof workspace_bytes));
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &mask, sizeof mask));
  named.status = cublasLtMatmulAlgoGetHeuristic(lt, p.d, p.a, p.b, p.c, p.c, preference, 8,
                                                named.all, &named.count);
  if (named.status != CUBLAS_STATUS_SUCCESS) named.count = 0;
  cublasLtMatmulPreferenceDestroy(preference);
  return named;
}

static void print_algorithm(const char* title, int number, double ms, double flops,
                            const cublasLtMatmulAlgo_t& algo) {
  std::printf("  %s #%d %8.1f us %5.0f TF (id %d tile %d split %d scheme %d)", title, number,
              ms * 1e3, flops / ms / 1e9, get(algo, CUBLASLT_ALGO_CONFIG_ID),
              get(algo, CUBLASLT_ALGO_CONFIG_TILE_ID), get(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
              get(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
}

// Prints the first algorithm's time and the best one's.
static void time_form(const Form& f, uint32_t mask) {
  const size_t C = size_t(f.M * f.N) * (f.f32_out ? 4 : 2);
  void *a = memory(size_t(f.M * f.K) * 2, 1), *b = memory(size_t(f.K * f.N) * 2, 2),
       *c = memory(C, 3), *bias = memory(size_t(std::max(f.M, f.N)) * 4, 4), *aux = memory(C, 5);
  {
    const Product p(f, bias, aux);
    const Named named = algorithms_of(p, mask);
    const float one = 1, beta = f.accumulate ? 1 : 0;
    double best = 1e9, first = 1e9;
    int winner = -1;
    for (int i = 0; i < named.count; ++i) {
      const auto run = [&] {
        return cublasLtMatmul(lt, p.d, &one, b, p.a, a, p.b, &beta, c, p.c, c, p.c,
                              &named.all[i].algo, workspace, workspace_bytes, stream);
      };
      if (run() != CUBLAS_STATUS_SUCCESS) continue;
      const double ms = ms_of([&] { (void)run(); }, 8, 3);
      if (i == 0) first = ms;
      if (ms < best) best = ms, winner = i;
    }
    const double flops = 2.0 * double(f.M) * double(f.N) * double(f.K);
    std::printf("%-26s mask %2u", f.name, mask);
    if (winner < 0) {
      std::printf("  no algorithm (status %d, %d named)", int(named.status), named.count);
    } else {
      print_algorithm("first", 0, first, flops, named.all[0].algo);
      print_algorithm("best", winner, best, flops, named.all[winner].algo);
    }
    std::printf("\n");
  }
  for (void* p : {a, b, c, bias, aux}) CHECK(cudaFree(p));
  std::fflush(stdout);
}

static void products() {
  constexpr int64_t N = 32768, C = 768, V = 50304;
  constexpr auto none = CUBLASLT_EPILOGUE_DEFAULT, bias = CUBLASLT_EPILOGUE_BIAS;
  const Form forms[] = {{"qkv forward", N, 3 * C, C, false, true, false, false, bias},
                        {"proj forward", N, C, C, false, true, false, false, bias},
                        {"fc forward", N, 4 * C, C, false, true, false, false, bias},
                        {"fc_proj forward", N, C, 4 * C, false, true, false, false, bias},
                        {"head forward", N, V, C, false, true, false, false, none},
                        {"head dX", N, C, V, false, false, false, false, none},
                        {"head dW f32", V, C, N, true, false, true, false, none},
                        {"head dW f32 added", V, C, N, true, false, true, true, none},
                        {"qkv dX", N, C, 3 * C, false, false, false, false, none},
                        {"proj dX", N, C, C, false, false, false, false, none},
                        {"fc dX", N, C, 4 * C, false, false, false, false, none},
                        {"fc_proj dX", N, 4 * C, C, false, false, false, false, none},
                        {"qkv dW", 3 * C, C, N, true, false, false, false, none},
                        {"proj dW", C, C, N, true, false, false, false, none},
                        {"fc dW", 4 * C, C, N, true, false, false, false, none},
                        {"fc_proj dW", C, 4 * C, N, true, false, false, false, none},
                        {"fc dW f32 added", 4 * C, C, N, true, false, true, true, none},
                        {"one row by the head", 1, V, C, false, true, false, false, none},
                        {"8192 cube", 8192, 8192, 8192, false, true, false, false, none}};
  std::printf("\nproducts: as Spool asks (mask 2), then any reduction (mask 15)\n");
  for (const Form& f : forms) {
    time_form(f, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    time_form(f, CUBLASLT_REDUCTION_SCHEME_MASK);
  }
}

static void epilogues() {
  constexpr int64_t N = 32768, C = 768;
  std::printf("\nproducts with epilogues\n");
  const Form fused[] = {
      {"fc forward gelu_aux_bias", N, 4 * C, C, false, true, false, false,
       CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
      {"fc_proj dX dgelu", N, 4 * C, C, false, false, false, false, CUBLASLT_EPILOGUE_DGELU},
      {"fc_proj dX dgelu_bgrad", N, 4 * C, C, false, false, false, false,
       CUBLASLT_EPILOGUE_DGELU_BGRAD},
      // c^T = b^T a^T has dY = a on the right: its sum over K is bgrad of B.
      {"qkv dW bgradb", 3 * C, C, N, true, false, false, false, CUBLASLT_EPILOGUE_BGRADB},
      {"proj dW bgradb", C, C, N, true, false, false, false, CUBLASLT_EPILOGUE_BGRADB},
      {"fc dW bgradb", 4 * C, C, N, true, false, false, false, CUBLASLT_EPILOGUE_BGRADB}};
  for (const Form& f : fused) time_form(f, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

int main() {
  open_device();
  CHECK(cublasLtCreate(&lt));
  CHECK(cudaMalloc(&workspace, workspace_bytes));
  std::printf("cuBLASLt %zu\n", cublasLtGetVersion());
  products();
  epilogues();
}
