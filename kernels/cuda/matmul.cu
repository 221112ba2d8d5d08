#include "spool/kernels/cuda/matmul.cuh"

#include <algorithm>
#include <array>
#include <compare>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spool/kernels/cuda/cublas_lt.cuh"
#include "spool/kernels/cuda/library.cuh"
#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/matmul_algorithms.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/handles.cuh"

// Products by cuBLASLt.  Its matrices are column-major, so it reads our row-major matrices as their
// transposes, and computes the transpose of c: the transpose of b times that of a.
//
// Results have the same bits every run.  An algorithm is the heuristics' first choice for shapes,
// types and alignment, or the one that a table names (kernels/matmul_algorithms.h).  cuBLAS gives
// the same bits on devices of one kind as long as its workspace is given ("Results Reproducibility"
// in its manual), and we pass ours.  Where several blocks compute parts of a sum, the one scheme
// allowed stores all parts in f32 and adds them in a launch of its own.

namespace spool {
namespace cuda {
namespace {

// Everything that decides how cuBLASLt computes a product, whatever its alpha.
struct Form {
  int64_t M, N, K;
  int64_t a_row, b_row, c_row, count, a_step, b_step;
  DType in, out;
  bool a_transposed, b_transposed, bias, accumulate;
  unsigned a_alignment, b_alignment, c_alignment;  // bytes
  size_t workspace;                                // bytes
  auto operator<=>(const Form&) const = default;
};

// The alignment of matrices `step` elements apart, up to 16 bytes.  No algorithm needs more, as no
// instruction moves more; so the choice, and the bits, do not depend on the address beyond that.
unsigned alignment(const View& first, int64_t step) {
  constexpr uintptr_t max_alignment = 16;
  const uintptr_t bytes = static_cast<uintptr_t>(step) * size_of(first.dtype());
  const uintptr_t address = reinterpret_cast<uintptr_t>(first.data()) | bytes | max_alignment;
  return static_cast<unsigned>(address & -address);
}

// Whether cuBLASLt adds the bias, which needs the type of c and an aligned address.  Else c is set
// to the bias first.
bool in_epilogue(const Matmul& k) {
  return k.bias && k.bias.dtype() == k.c.view.dtype() && is_aligned(k.bias);
}

Form form(const MatmulBatch& all) {
  const Matmul& k = all.first;
  return {.M = k.M(),
          .N = k.N(),
          .K = k.K(),
          .a_row = k.a_stride(),
          .b_row = k.b_stride(),
          .c_row = k.c_stride(),
          .count = all.count,
          .a_step = all.a_step,
          .b_step = all.b_step,
          .in = k.a.dtype(),
          .out = k.c.view.dtype(),
          .a_transposed = k.a_transposed,
          .b_transposed = k.b_transposed,
          .bias = in_epilogue(k),
          .accumulate = k.c.accumulate,
          .a_alignment = alignment(k.a, all.a_step),
          .b_alignment = alignment(k.b, all.b_step),
          .c_alignment = alignment(k.c.view, all.c_step),
          .workspace = k.workspace.nbytes()};
}

std::ostream& operator<<(std::ostream& out, const Form& f) {
  if (f.count > 1) out << f.count << " times ";
  return out << "a product of (" << f.M << ", " << f.K << ")"
             << (f.a_transposed ? " transposed" : "") << " and (" << f.K << ", " << f.N << ")"
             << (f.b_transposed ? " transposed" : "") << ", " << name(f.in) << " into "
             << name(f.out) << (f.bias ? ", with bias" : "") << (f.accumulate ? ", added" : "");
}

// The form as a table names it, with everything that decides.
std::string in_words(const Form& f) {
  return sentence(f, "; rows ", f.a_row, ", ", f.b_row, " and ", f.c_row, " apart; steps ",
                  f.a_step, " and ", f.b_step, ", aligned to ", f.a_alignment, ", ", f.b_alignment,
                  " and ", f.c_alignment, " bytes, ", f.workspace, " bytes of workspace");
}

template <class... Parts>
void check_cublas(cublasStatus_t status, const Parts&... parts) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(ErrorKind::device, "cuBLASLt: ", parts..., ": ", cublas_lt().GetStatusString(status));
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    (void)(cublas_lt().*destroy)(object);
  }
};
template <class Pointer, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<destroy>>;
using Lt = Owned<cublasLtHandle_t, &CublasLt::Destroy>;
using Description = Owned<cublasLtMatmulDesc_t, &CublasLt::MatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &CublasLt::MatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::MatmulPreferenceDestroy>;

cudaDataType_t data_type(DType t) { return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// Elements in memory from one row to the next, and from one matrix.
struct Steps {
  int64_t row, count, step;
};

template <class T>
void set(const Layout& l, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check_cublas(cublas_lt().MatrixLayoutSetAttribute(l.get(), attribute, &value, sizeof value),
               "an attribute of a layout");
}

// The layout of row-major matrices (rows, columns).
Layout make_layout(DType type, int64_t rows, int64_t columns, const Steps& matrices) {
  cublasLtMatrixLayout_t made = nullptr;
  check_cublas(
      cublas_lt().MatrixLayoutCreate(&made, data_type(type), static_cast<uint64_t>(columns),
                                     static_cast<uint64_t>(rows), matrices.row),
      "a layout");
  Layout layout(made);
  if (matrices.count > 1) {
    check(matrices.count <= std::numeric_limits<int32_t>::max(), "cuBLASLt: ", matrices.count,
          " products at once are too many");
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(matrices.count));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrices.step);
  }
  return layout;
}

template <class T>
void set(const Description& d, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublas_lt().MatmulDescSetAttribute(d.get(), attribute, &value, sizeof value),
               "an attribute of a product");
}

// The factors swap places, as the product is of transposes.
Description describe(const Form& f, const void* bias) {
  cublasLtMatmulDesc_t made = nullptr;
  check_cublas(cublas_lt().MatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "a description");
  Description d(made);
  const auto operation = [](bool transposed) -> cublasOperation_t {
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(d, CUBLASLT_MATMUL_DESC_TRANSA, operation(f.b_transposed));
  set(d, CUBLASLT_MATMUL_DESC_TRANSB, operation(f.a_transposed));
  if (f.bias) {
    set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return d;
}

template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_cublas(cublas_lt().MatmulPreferenceSetAttribute(p.get(), attribute, &value, sizeof value),
               "a preference");
}

Preference prefer(const Form& f) {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(cublas_lt().MatmulPreferenceCreate(&made), "preferences");
  Preference p(made);
  set(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{f.workspace});
  set(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{f.b_alignment});
  set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{f.a_alignment});
  set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{f.c_alignment});
  set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{f.c_alignment});
  return p;
}

// nvcc fails on vectors of cublasLtMatmulAlgo_t itself, a struct without a name.
struct Algorithm {
  cublasLtMatmulAlgo_t lt;
};

// A form with its algorithms; it can run any number of times.
class Product {
 public:
  Product(cublasLtHandle_t lt, const Form& f, const Matmul& k)
      : description_(describe(f, k.bias.data())),
        a_(f.a_transposed ? make_layout(f.in, f.K, f.M, {f.a_row, f.count, f.a_step})
                          : make_layout(f.in, f.M, f.K, {f.a_row, f.count, f.a_step})),
        b_(f.b_transposed ? make_layout(f.in, f.N, f.K, {f.b_row, f.count, f.b_step})
                          : make_layout(f.in, f.K, f.N, {f.b_row, f.count, f.b_step})),
        c_(make_layout(f.out, f.M, f.N, {f.c_row, f.count, f.M * f.N})),
        algorithms_(find(lt, f)) {}

  int algorithms() const { return static_cast<int>(algorithms_.size()); }
  int place() const { return place_; }
  // Takes that algorithm of those the heuristics name; the first if there are fewer.
  void take(int place) { place_ = place >= 0 && place < algorithms() ? place : 0; }

  cublasStatus_t run(cublasLtHandle_t lt, const Form& f, const Matmul& k, cudaStream_t stream) {
    const float alpha = static_cast<float>(k.alpha), before = f.accumulate ? 1 : 0;
    if (f.bias) set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, k.bias.data());
    void* c = k.c.view.data();
    return cublas_lt().Matmul(lt, description_.get(), &alpha, k.b.data(), b_.get(), k.a.data(),
                              a_.get(), &before, c, c_.get(), c, c_.get(),
                              &algorithms_[static_cast<size_t>(place_)].lt, k.workspace.data(),
                              k.workspace.nbytes(), stream);
  }

 private:
  std::vector<Algorithm> find(cublasLtHandle_t lt, const Form& f) const {
    std::array<cublasLtMatmulHeuristicResult_t, max_matmul_algorithms> found = {};
    int count = 0;
    const Preference preference = prefer(f);
    const cublasStatus_t status = cublas_lt().MatmulAlgoGetHeuristic(
        lt, description_.get(), b_.get(), a_.get(), c_.get(), c_.get(), preference.get(),
        static_cast<int>(found.size()), found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS) count = 0;
    std::vector<Algorithm> all;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) all.push_back({found[i].algo});
    }
    if (all.empty()) {
      fail(ErrorKind::device, "cuBLASLt has no algorithm for ", f, " within ", f.workspace,
           " bytes of workspace");
    }
    return all;
  }

  Description description_;
  Layout a_, b_, c_;
  std::vector<Algorithm> algorithms_;  // supported ones, in the heuristics' order
  int place_ = 0;
};

// The shortest of several times of a product, in seconds.
double seconds_of(Product& product, cublasLtHandle_t lt, const Form& f, const Matmul& k,
                  cudaStream_t stream) {
  constexpr int times = 6;
  EventHandle begin, end;
  check_call(cudaEventCreateWithFlags(begin.out(), cudaEventDefault), "cudaEventCreateWithFlags");
  check_call(cudaEventCreateWithFlags(end.out(), cudaEventDefault), "cudaEventCreateWithFlags");
  float min = std::numeric_limits<float>::infinity();
  for (int i = 0; i < times; ++i) {
    check_call(cudaEventRecord(begin.get(), stream), "cudaEventRecord");
    if (product.run(lt, f, k, stream) != CUBLAS_STATUS_SUCCESS) return min;
    check_call(cudaEventRecord(end.get(), stream), "cudaEventRecord");
    check_call(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    if (i > 0) min = std::min(min, milliseconds);  // the first run loads the kernel
  }
  return static_cast<double>(min) * 1e-3;
}

// A stream's instance of cuBLASLt, with an algorithm for every form in use.
class Products {
 public:
  explicit Products(CudaStream& stream)
      : table_{.device = cuda_device(stream.device().index).name,
               .library = cublas_lt().GetVersion()} {
    check_not_capturing(stream, "cuBLASLt");
    cublasLtHandle_t made = nullptr;
    check_cublas(cublas_lt().Create(&made), "its start");
    lt_.reset(made);
  }

  void run(const MatmulBatch& all, CudaStream& stream) {
    const Form f = form(all);
    const Matmul& k = all.first;
    auto place = products_.find(f);
    if (place == products_.end()) place = add(f, k, stream);
    check_cublas(place->second.run(lt_.get(), f, k, static_cast<cudaStream_t>(stream.native())), f);
  }

  void use(const MatmulAlgorithms& table) {
    if (table.is_of_device_of(table_)) table_.places = table.places;
  }
  void time() {
    products_.clear();
    timing_ = true;
  }
  MatmulAlgorithms algorithms() const {
    MatmulAlgorithms all{.device = table_.device, .library = table_.library};
    for (const auto& [form, product] : products_) all.places[in_words(form)] = product.place();
    return all;
  }

 private:
  using Place = std::map<Form, Product>::iterator;

  Place add(const Form& f, const Matmul& k, CudaStream& stream) {
    const Place place = products_.try_emplace(f, lt_.get(), f, k).first;
    if (timing_) {
      take_fastest(*place, k, stream);
    } else if (const auto known = table_.places.find(in_words(f)); known != table_.places.end()) {
      place->second.take(known->second);
    }
    return place;
  }
  void take_fastest(std::pair<const Form, Product>& each, const Matmul& k, CudaStream& stream) {
    constexpr double worth = 0.98;
    auto& [f, product] = each;
    int best = 0;
    double min = 0;
    for (int place = 0; place < product.algorithms(); ++place) {
      product.take(place);
      const double seconds =
          seconds_of(product, lt_.get(), f, k, static_cast<cudaStream_t>(stream.native()));
      if (place > 0 && seconds >= worth * min) continue;
      best = place;
      min = seconds;
    }
    product.take(best);
  }

  Lt lt_;
  std::map<Form, Product> products_;
  MatmulAlgorithms table_;
  bool timing_ = false;
};

// c[m,n] (+)= bias[n], or 0 without bias, in all products.
template <class T, class C>
struct SpreadEach {
  Sink<C> c;
  const T* bias;
  int64_t N;
  template <int n>
  __device__ void apply(int64_t i) const {
    Floats<n> x;
    int64_t column = i % N;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      x.at[k] = bias ? to_float(bias[column]) : 0;
      column = column + 1 < N ? column + 1 : 0;
    }
    c.put(i, x);
  }
};

void spread_bias(const MatmulBatch& all, CudaStream& stream) {
  const Matmul& k = all.first;
  dispatch(k.a.dtype(), [&](auto x) {
    using T = decltype(x);
    dispatch_gradient<T>(k.c.view.dtype(), [&](auto y) {
      using C = decltype(y);
      map(stream, all.count * k.M() * k.N(), SpreadEach<T, C>{Sink<C>(k.c), k.bias.as<T>(), k.N()},
          k.c.view);
    });
  });
}

void check_types(const Matmul& k) {
  dispatch(k.a.dtype(),
           [&](auto x) { dispatch_gradient<decltype(x)>(k.c.view.dtype(), [](auto) {}); });
}

}  // namespace

void multiply(const MatmulBatch& all, CudaStream& stream) {
  const Matmul& k = all.first;
  check_types(k);
  MatmulBatch rest = all;
  if (k.K() == 0 || (k.bias && !in_epilogue(k))) {
    spread_bias(all, stream);
    rest.first.bias = {};
    rest.first.c.accumulate = true;
  }
  if (k.K() > 0) stream.library<Products>().run(rest, stream);
}

}  // namespace cuda

MatmulAlgorithms matmul_algorithms(CudaStream& stream) {
  return stream.library<cuda::Products>().algorithms();
}
void use_matmul_algorithms(CudaStream& stream, const MatmulAlgorithms& table) {
  stream.library<cuda::Products>().use(table);
}
void time_matmul_algorithms(CudaStream& stream) { stream.library<cuda::Products>().time(); }

void run(const Matmul& k, CudaStream& stream) {
  if (k.M() > 0 && k.N() > 0) cuda::multiply(k, stream);
}

}  // namespace spool
