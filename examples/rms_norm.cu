// An op with a weight and a reduction in full, for the cpu and for GPUs: RMSNorm (Zhang, Sennrich
// 2019).  The program checks it on both devices, or on the one that is here.

#include <cstdio>
#include <string>
#include <vector>

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cuda/column_sums.cuh"
#include "spool/kernels/row_groups.h"
#include "spool/spool.h"
#include "spool/testing.h"

namespace research {

using namespace spool;

// y[n,c] = x[n,c] rstd[n] weight[c]        rstd[n] = 1 / sqrt(mean_c x[n,c]^2 + eps)
// dx[n,c] (+)= rstd (weight dy - x rstd^2 mean_c(weight dy x))
// dweight[c] (+)= sum_n dy x rstd
// Outputs share no memory with other arguments.
struct RmsNormForward {
  static constexpr const char* name = "rms_norm_forward";
  View y, rstd;  // (N.., C), of the type of x; (N), f32 (f64 of f64)
  View x, weight;
  double eps = 0;

  void check_arguments() const {
    const Arguments all(name);
    all.present("x", x, floating);
    const int64_t N = x.shape().rows(), C = x.shape().row();
    all.elements("weight", weight, x.dtype(), C);
    all.rows("y", y, x.dtype(), N, C);
    all.elements("rstd", rstd, accumulator(x.dtype()), N);
  }
  Cost cost() const { return {4.0 * static_cast<double>(x.numel()), bytes(y, rstd, x, weight)}; }
};

struct RmsNormBackward {
  static constexpr const char* name = "rms_norm_backward";
  Grad dx, dweight;  // absent: not computed
  View dy, x, weight, rstd;
  View workspace = {};

  int64_t N() const { return x.shape().rows(); }
  int64_t C() const { return x.shape().row(); }
  void check_arguments() const {
    const Arguments all(name);
    all.present("x", x, floating);
    const DType type = x.dtype();
    all.rows("dy", dy, type, N(), C());
    all.elements("weight", weight, type, C());
    all.elements("rstd", rstd, accumulator(type), N());
    if (dx) all.rows("dx", dx.view, gradient_of(type), N(), C());
    if (dweight) all.elements("dweight", dweight.view, gradient_of(type), C());
  }
  Cost cost() const {
    return {10.0 * static_cast<double>(x.numel()), bytes(dx, dweight, dy, x, weight, rstd)};
  }
  // Partial sums of dweight.
  size_t workspace_bytes(const CpuArchitecture&) const {
    const int64_t pieces = dweight ? cpu::RowPieces(N(), C()).count : 0;
    return static_cast<size_t>(pieces * C()) * size_of(accumulator(x.dtype()));
  }
  size_t workspace_bytes(const CudaArchitecture&) const {
    const int64_t groups = dweight ? cuda::RowGroups(N(), C()).count : 0;
    return static_cast<size_t>(groups * C()) * sizeof(float);
  }
};

// On the cpu.  T is a type of values, A the type of the arithmetic.
void run(const RmsNormForward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      const T* const w = k.weight.as<T>();
      for (int64_t n = begin; n < end; ++n) {
        const T* const x = k.x.as<T>() + n * C;
        const A sum = cpu::sum<A>(C, [=](int64_t c) { return A(x[c]) * A(x[c]); });
        const A r = 1 / std::sqrt(sum / static_cast<A>(C) + static_cast<A>(k.eps));
        k.rstd.as<A>()[n] = r;
        cpu::put_all(C, cpu::Sink<T, false>{k.y.as<T>() + n * C},
                     [=](int64_t c) { return A(x[c]) * r * A(w[c]); });
      }
    });
  });
}

// Sums over rows are split by N and C alone and added in order: the same bits for any number of
// threads.
void run(const RmsNormBackward& k, CpuStream& stream) {
  const int64_t N = k.N(), C = k.C();
  const cpu::RowPieces pieces(N, C);
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    A* const partials = k.workspace.as<A>();
    stream.parallel_for(N, pieces.rows, [&](int64_t begin, int64_t end) {
      A* const dw = partials + (k.dweight ? begin / pieces.rows * C : 0);
      if (k.dweight) std::fill_n(dw, C, A{0});
      const T* const w = k.weight.as<T>();
      for (int64_t n = begin; n < end; ++n) {
        const T *x = k.x.as<T>() + n * C, *dy = k.dy.as<T>() + n * C;
        const A r = k.rstd.as<A>()[n];
        const A sum = cpu::sum<A>(C, [=](int64_t c) { return A(w[c]) * A(dy[c]) * A(x[c]); });
        const A common = r * r * sum / static_cast<A>(C);
        if (k.dweight) {
          cpu::put_all(C, cpu::Sink<A, true>{dw},
                       [=](int64_t c) { return A(dy[c]) * A(x[c]) * r; });
        }
        if (!k.dx) continue;
        cpu::dispatch_sink<T>(k.dx, [&](auto dx) {
          cpu::put_all(C, dx.at(n * C),
                       [=](int64_t c) { return r * (A(w[c]) * A(dy[c]) - A(x[c]) * common); });
        });
      }
    });
    if (!k.dweight) return;
    cpu::dispatch_sink<T>(k.dweight, [&](auto dweight) {
      cpu::add_pieces(stream, partials, C, pieces.count, C, dweight);
    });
  });
}

// On a GPU a block computes a row; the sum over rows is that of column_sums.cuh.
constexpr int block = 256;

template <class T>
__global__ void __launch_bounds__(block)
    forward_kernel(T* y, float* rstd, const T* x, const T* weight, int64_t C, float eps) {
  SPOOL_SHARED(float, scratch, cuda::warp_lanes);
  const int64_t first = blockIdx.x * C;
  float sum = 0;
  for (int64_t c = threadIdx.x; c < C; c += block) {
    const float v = cuda::to_float(x[first + c]);
    sum += v * v;
  }
  const float r = 1 / sqrtf(cuda::block_sum(sum, scratch) / static_cast<float>(C) + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  for (int64_t c = threadIdx.x; c < C; c += block) {
    y[first + c] =
        cuda::from_float<T>(cuda::to_float(x[first + c]) * r * cuda::to_float(weight[c]));
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(block) dx_kernel(cuda::Sink<Out> dx, const T* dy, const T* x,
                                                   const T* weight, const float* rstd, int64_t C) {
  SPOOL_SHARED(float, scratch, cuda::warp_lanes);
  const int64_t first = blockIdx.x * C;
  const float r = rstd[blockIdx.x];
  float sum = 0;
  for (int64_t c = threadIdx.x; c < C; c += block) {
    sum += cuda::to_float(weight[c]) * cuda::to_float(dy[first + c]) * cuda::to_float(x[first + c]);
  }
  const float common = r * r * cuda::block_sum(sum, scratch) / static_cast<float>(C);
  for (int64_t c = threadIdx.x; c < C; c += block) {
    const float w = cuda::to_float(weight[c]) * cuda::to_float(dy[first + c]);
    dx.put(first + c, cuda::Floats<1>{{r * (w - cuda::to_float(x[first + c]) * common)}});
  }
}

// The terms of dweight at row n, columns c to c + width - 1.
template <class T>
struct WeightTerm {
  const T *dy, *x;
  const float* rstd;
  int64_t C;
  template <int width>
  __device__ cuda::Floats<width> at(int64_t n, int64_t c) const {
    cuda::Floats<width> a = cuda::load<width>(dy + n * C + c);
    const cuda::Floats<width> b = cuda::load<width>(x + n * C + c);
    for (int i = 0; i < width; ++i) a.at[i] *= b.at[i] * rstd[n];
    return a;
  }
};

void run(const RmsNormForward& k, CudaStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  if (N == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::launch_kernel(
        stream, forward_kernel<T>, {.grid = dim3(unsigned(N)), .block = dim3(block)}, k.y.as<T>(),
        k.rstd.as<float>(), k.x.as<T>(), k.weight.as<T>(), C, static_cast<float>(k.eps));
  });
}

void run(const RmsNormBackward& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    if (k.dx && k.N() > 0) {
      cuda::dispatch_gradient<T>(k.dx.view.dtype(), [&](auto gradient) {
        using Out = decltype(gradient);
        cuda::launch_kernel(stream, dx_kernel<T, Out>,
                            {.grid = dim3(unsigned(k.N())), .block = dim3(block)},
                            cuda::Sink<Out>(k.dx), k.dy.as<T>(), k.x.as<T>(), k.weight.as<T>(),
                            k.rstd.as<float>(), k.C());
      });
    }
    if (!k.dweight) return;
    const WeightTerm<T> term{k.dy.as<T>(), k.x.as<T>(), k.rstd.as<float>(), k.C()};
    const bool wide = cuda::packs<T>(term.dy, k.C()) && cuda::packs<T>(term.x, k.C());
    cuda::sum_columns<T>(stream, term, k.N(), k.dweight, k.workspace.as<float>(), wide);
  });
}

struct RmsNorm final : Op {
  double eps;
  explicit RmsNorm(double e) : eps(e) {}

  const char* name() const override { return "rms_norm"; }
  OpKind kind() const override { return OpKind::norm; }
  std::string attributes() const override { return in_words({{"eps", eps}}); }
  const char* indices() const override { return "nC,C->nC,n"; }

  Specs infer(const Specs& in) const override {
    const Spec &x = in[0], &weight = in[1];
    check(weight == Spec{Shape{x.shape.row()}, x.dtype}, "rms_norm: a weight of ", weight, " for ",
          x, "; it must be ", Spec{Shape{x.shape.row()}, x.dtype});
    return {x, {Shape{x.shape.rows()}, accumulator(x.dtype)}};
  }

  void forward(Forward& f) const override {
    const auto [x, weight] = f.inputs<2>();
    const auto [y, rstd] = f.outputs<2>();
    f.launch(RmsNormForward{.y = y, .rstd = rstd, .x = x, .weight = weight, .eps = eps});
  }

  Slots saves(const Needs&) const override { return {in(0), in(1), out(1)}; }

  void backward(Backward& b) const override {
    const auto [x, weight, rstd] = b.saved<3>();
    const auto [dy] = b.grad_outputs<1>();
    const auto [dx, dweight] = b.grad_inputs<2>();
    b.launch(RmsNormBackward{
        .dx = dx, .dweight = dweight, .dy = dy, .x = x, .weight = weight, .rstd = rstd});
  }
};

// x (N.., C), weight (C) -> (N.., C).
Var rms_norm(const Var& x, const Operand& weight, double eps = 1e-6) {
  return apply<RmsNorm>({x, weight}, eps);
}

bool has_gpu() {
  try {
    const CudaStream stream(/*index=*/0, /*budget=*/1 << 20);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace research

int main() {
  using namespace spool;
  const OpSample sample{.name = "rms_norm",
                        .inputs = {{.shape = {3, 2, 8}, .large = {600, 300}},
                                   {.shape = {8}, .parameter = true, .large = {300}}},
                        .apply = [](const std::vector<Operand>& x) {
                          return std::vector{research::rms_norm(*x[0].var, x[1])};
                        }};
  std::vector<std::string> failures = check_op(sample);
  const bool on_both = research::has_gpu();
  if (on_both) {
    for (const std::string& failure : check_op(sample, {DeviceType::cuda})) {
      failures.push_back(failure);
    }
  }
  for (const std::string& failure : failures) std::printf("%s\n", failure.c_str());
  std::printf("rms_norm on %s: %zu faults\n", on_both ? "the cpu and cuda" : "the cpu",
              failures.size());
  return failures.empty() ? 0 : 1;
}
