// A Llama block whose norm, position embedding and activation are custom ops instead of those of
// autograd/ops.h.  Each is two kernels and some forty lines that do not mention memory, yet its
// values are kept, recomputed, offloaded and planned.  Under several policies and within a budget,
// losses and parameters are equal bit for bit, and peaks are as foretold.

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "spool/kernels/cpu/scalar.h"
#include "spool/spool.h"
#include "spool/testing.h"

namespace research {

using namespace spool;

constexpr int64_t rows_at_a_time = 16;  // of a thread

// y[n,c] = x[n,c] r[n] weight[c],  r[n] = 1 / sqrt(mean_c x[n,c]^2 + eps)   (Zhang, Sennrich 2019)
struct RmsNormForward {
  static constexpr const char* name = "rms_norm_forward";
  View y, x, weight;  // (N.., C), (N.., C), (C)
  double eps = 0;
  Cost cost() const { return {4.0 * static_cast<double>(x.numel()), bytes(y, x, weight)}; }
};

// dx[n,c] (+)= r (w dy - x r^2 mean_c(w dy x)),  dweight[c] (+)= sum_n dy x r
struct RmsNormBackward {
  static constexpr const char* name = "rms_norm_backward";
  Grad dx, dweight;
  View dy, x, weight;
  double eps = 0;
  Cost cost() const {
    return {10.0 * static_cast<double>(x.numel()), bytes(dx, dweight, dy, x, weight)};
  }
};

template <class T>
T inverse_rms(const T* x, int64_t C, double eps) {
  double sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += double{x[c]} * double{x[c]};
  return static_cast<T>(1 / std::sqrt(sum / static_cast<double>(C) + eps));
}

template <class T>
void put(T& to, T value, bool add) {
  to = add ? to + value : value;
}

// The kernels are for f32, and for f64, in which gradients are compared with differences.
template <class F>
void for_type(DType type, const F& f) {
  type == DType::f64 ? f(double{}) : f(float{});
}

void run(const RmsNormForward& k, CpuStream& stream) {
  for_type(k.x.dtype(), [&]<class T>(T) {
    const int64_t C = k.weight.numel(), N = k.x.numel() / C;
    const T *all = k.x.as<T>(), *weight = k.weight.as<T>();
    T* const out = k.y.as<T>();
    stream.parallel_for(N, rows_at_a_time, [=, eps = k.eps](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* const x = all + n * C;
        const T r = inverse_rms(x, C, eps);
        for (int64_t c = 0; c < C; ++c) out[n * C + c] = x[c] * r * weight[c];
      }
    });
  });
}

// On one thread: the sums over the rows are formed in their order.
void run(const RmsNormBackward& k, CpuStream&) {
  for_type(k.x.dtype(), [&]<class T>(T) {
    const int64_t C = k.weight.numel(), N = k.x.numel() / C;
    const T* const w = k.weight.as<T>();
    std::vector<double> dweight(static_cast<size_t>(C));
    for (int64_t n = 0; n < N; ++n) {
      const T *x = k.x.as<T>() + n * C, *dy = k.dy.as<T>() + n * C;
      const T r = inverse_rms(x, C, k.eps);
      double sum = 0;
      for (int64_t c = 0; c < C; ++c) {
        dweight[static_cast<size_t>(c)] += double{dy[c]} * double{x[c]} * double{r};
        sum += double{w[c]} * double{dy[c]} * double{x[c]};
      }
      if (!k.dx) continue;
      T* const dx = k.dx.view.as<T>() + n * C;
      const T common = r * r * static_cast<T>(sum / static_cast<double>(C));
      for (int64_t c = 0; c < C; ++c) {
        put(dx[c], r * (w[c] * dy[c] - x[c] * common), k.dx.accumulate);
      }
    }
    for (int64_t c = 0; k.dweight && c < C; ++c) {
      const T sum = static_cast<T>(dweight[static_cast<size_t>(c)]);
      put(k.dweight.view.as<T>()[c], sum, k.dweight.accumulate);
    }
  });
}

struct RmsNorm final : Op {
  double eps;
  explicit RmsNorm(double e) : eps(e) {}

  const char* name() const override { return "rms_norm"; }
  OpKind kind() const override { return OpKind::norm; }
  std::string attributes() const override { return in_words({{"eps", eps}}); }
  const char* indices() const override { return "nC,C->nC"; }
  Specs infer(const Specs& in) const override {
    const int64_t C = in[0].shape[-1];
    check(in[1].shape == Shape{C}, "rms_norm: rows of ", C, " and a weight of ", in[1].shape);
    return {in[0]};
  }
  void forward(Forward& f) const override {
    const auto [x, weight] = f.inputs<2>();
    const auto [y] = f.outputs<1>();
    f.launch(RmsNormForward{.y = y, .x = x, .weight = weight, .eps = eps});
  }
  Slots saves(const Needs&) const override { return {in(0), in(1)}; }
  void backward(Backward& b) const override {
    const auto [x, weight] = b.saved<2>();
    const auto [dy] = b.grad_outputs<1>();
    const Grad dx = b.needs_grad(0) ? b.grad_input(0) : Grad{};
    const Grad dweight = b.grad_input(1);
    b.launch(RmsNormBackward{
        .dx = dx, .dweight = dweight, .dy = dy, .x = x, .weight = weight, .eps = eps});
  }
};

// Rotates each pair (d, d + D/2) of those heads that have positions by t / 10000^(2d/D), where t is
// the token's place in its row; or back, for a gradient.   (Su et al. 2021)
struct Rotate {
  static constexpr const char* name = "rotate";
  Grad out;
  View x;  // (B, T, all heads x D)
  int64_t heads = 1, D = 2;
  double sign = 1;
  Cost cost() const { return {6.0 * static_cast<double>(x.numel()), bytes(out, x)}; }
};

void run(const Rotate& k, CpuStream& stream) {
  for_type(k.x.dtype(), [&]<class T>(T) {
    const int64_t tokens = k.x.shape()[1], C = k.x.shape()[2], half = k.D / 2;
    stream.parallel_for(k.x.numel() / C, rows_at_a_time, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* const x = k.x.as<T>() + n * C;
        T* const out = k.out.view.as<T>() + n * C;
        for (int64_t i = 0; i < k.heads * half; ++i) {
          const int64_t a = i / half * k.D + i % half, b = a + half;
          const double speed =
              std::pow(1e4, -2.0 * static_cast<double>(i % half) / static_cast<double>(k.D));
          const double angle = k.sign * static_cast<double>(n % tokens) * speed;
          const T c = static_cast<T>(std::cos(angle)), s = static_cast<T>(std::sin(angle));
          const T first = x[a] * c - x[b] * s, second = x[a] * s + x[b] * c;
          put(out[a], first, k.out.accumulate);
          put(out[b], second, k.out.accumulate);
        }
        for (int64_t i = k.heads * k.D; i < C; ++i) put(out[i], x[i], k.out.accumulate);
      }
    });
  });
}

// The positions of the queries and keys of packed qkv.
struct Rope final : Op {
  Heads heads;
  explicit Rope(const Heads& h) : heads(h) {}

  const char* name() const override { return "rope"; }
  std::string attributes() const override {
    return in_words({{"query", heads.query}, {"key", heads.key}});
  }
  const char* indices() const override { return "bTC->bTC"; }
  Specs infer(const Specs& in) const override {
    const int64_t all = heads.query + 2 * heads.key;
    check(in[0].shape.rank() == 3 && in[0].shape[2] % (2 * all) == 0, "rope: ", in[0].shape,
          " is not (B, T, ", all, " heads of an even size)");
    return {in[0]};
  }
  Rotate kernel(const Grad& out, const View& x, double sign) const {
    const int64_t D = x.shape()[2] / (heads.query + 2 * heads.key);
    return {.out = out, .x = x, .heads = heads.query + heads.key, .D = D, .sign = sign};
  }
  void forward(Forward& f) const override {
    const auto [x] = f.inputs<1>();
    const auto [y] = f.outputs<1>();
    f.launch(kernel(y, x, 1));
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    const auto [dy] = b.grad_outputs<1>();
    b.launch(kernel(b.grad_input_over(/*input=*/0, /*output=*/0), dy, -1));
  }
};

// y[n,f] = silu(x[n,f]) x[n,F+f],  silu(g) = g / (1 + e^-g)   (Shazeer 2020)
struct SwigluForward {
  static constexpr const char* name = "swiglu_forward";
  View y, x;  // (N.., F), (N.., 2F)
  Cost cost() const { return {8.0 * static_cast<double>(y.numel()), bytes(y, x)}; }
};
struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  Grad dx;
  View dy, x;
  Cost cost() const { return {14.0 * static_cast<double>(dy.numel()), bytes(dx, dy, x)}; }
};

void run(const SwigluForward& k, CpuStream& stream) {
  for_type(k.x.dtype(), [&]<class T>(T) {
    const int64_t F = k.y.shape()[-1];
    stream.parallel_for(k.y.numel() / F, rows_at_a_time, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin * F; i < end * F; ++i) {
        const T *gate = k.x.as<T>() + i / F * 2 * F + i % F, *up = gate + F;
        k.y.as<T>()[i] = *gate / (1 + cpu::exp(-*gate)) * *up;
      }
    });
  });
}

void run(const SwigluBackward& k, CpuStream& stream) {
  for_type(k.x.dtype(), [&]<class T>(T) {
    const int64_t F = k.dy.shape()[-1];
    stream.parallel_for(k.dy.numel() / F, rows_at_a_time, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin * F; i < end * F; ++i) {
        const int64_t g = i / F * 2 * F + i % F, u = g + F;
        const T gate = k.x.as<T>()[g], up = k.x.as<T>()[u], dy = k.dy.as<T>()[i];
        const T s = 1 / (1 + cpu::exp(-gate));
        put(k.dx.view.as<T>()[g], dy * up * s * (1 + gate * (1 - s)), k.dx.accumulate);
        put(k.dx.view.as<T>()[u], dy * gate * s, k.dx.accumulate);
      }
    });
  });
}

struct Swiglu final : Op {
  const char* name() const override { return "swiglu"; }
  OpKind kind() const override { return OpKind::activation; }
  const char* indices() const override { return "nG->nF"; }
  Specs infer(const Specs& in) const override {
    Spec y = in[0];
    const int last = y.shape.rank() - 1;
    check(y.shape[last] % 2 == 0, "swiglu: ", y.shape, " has no two halves");
    y.shape = y.shape.with(last, y.shape[last] / 2);
    return {y};
  }
  void forward(Forward& f) const override {
    const auto [x] = f.inputs<1>();
    const auto [y] = f.outputs<1>();
    f.launch(SwigluForward{.y = y, .x = x});
  }
  Slots saves(const Needs&) const override { return {in(0)}; }
  void backward(Backward& b) const override {
    const auto [x] = b.saved<1>();
    const auto [dy] = b.grad_outputs<1>();
    b.launch(SwigluBackward{.dx = b.grad_input(0), .dy = dy, .x = x});
  }
};

Var rms_norm(const Var& x, const Operand& weight, double eps = 1e-5) {
  return apply<RmsNorm>(x.tape(), {x, weight}, eps);
}
Var rope(const Var& qkv, const Heads& heads) { return apply<Rope>(qkv.tape(), {qkv}, heads); }
Var swiglu(const Var& x) { return apply<Swiglu>(x.tape(), {x}); }

// What is wrong with the ops, in sentences.
std::vector<std::string> check_ops() {
  static constexpr Heads few{.query = 2, .key = 1};
  const std::vector types = {DType::f64, DType::f32};
  std::vector<std::string> faults;
  for (const OpSample& sample :
       {OpSample{.name = "rms_norm",
       .inputs = {{.shape = {5, 6}}, {.shape = {6}}},
       .apply = [](const auto& x) { return std::vector{research::rms_norm(*x[0].var, x[1])}; },
       .types = types},
        OpSample{.name = "rope",
        .inputs = {{.shape = {2, 3, 16}}},
        .apply = [](const auto& x) { return std::vector{research::rope(*x[0].var, few)}; },
        .types = types},
        OpSample{.name = "swiglu",
        .inputs = {{.shape = {5, 6}}},
        .apply = [](const auto& x) { return std::vector{research::swiglu(*x[0].var)}; },
        .types = types}}) {
    for (std::string& fault : check_op(sample)) faults.push_back(std::move(fault));
  }
  return faults;
}

constexpr int64_t B = 4, T = 64, C = 64, V = 256, layers = 4;
constexpr Heads heads{.query = 4, .key = 2};

class Llama final : public StepModel {
 public:
  explicit Llama(Stream& stream)
      : parameters_(stream),
        embedding_(parameters_.add("embedding.weight", {V, C}, normal(0.02f))),
        head_(parameters_.add("head.weight", {V, C}, normal(0.02f))),
        norm_(parameters_.add("norm.weight", {C}, ones())),
        tokens_({Shape{B, T}, DType::i32}, stream, {.name = "tokens", .purpose = Purpose::input}),
        targets_({Shape{B, T}, DType::i32}, stream,
                 {.name = "targets", .purpose = Purpose::input}) {
    constexpr int64_t D = C / heads.query, qkv = (heads.query + 2 * heads.key) * D, F = 3 * C;
    for (int64_t l = 0; l < layers; ++l) {
      const std::string prefix = "layers." + std::to_string(l) + ".";
      const auto add = [&](const char* name, const Shape& shape) -> Parameter& {
        const bool is_norm = shape.rank() == 1;
        return parameters_.add(prefix + name, shape, is_norm ? ones() : normal(0.02f));
      };
      blocks_.push_back({.norm_1 = add("norm_1.weight", {C}),
                         .qkv = add("qkv.weight", {qkv, C}),
                         .out = add("out.weight", {C, C}),
                         .norm_2 = add("norm_2.weight", {C}),
                         .gate_up = add("gate_up.weight", {2 * F, C}),
                         .down = add("down.weight", {C, F})});
    }
  }

  Parameters& parameters() override { return parameters_; }
  Var loss(Tape& tape) override {
    Var x = embedding(tape.input(tokens_), embedding_);
    for (const Block& b : blocks_) {
      const Tape::Scope scope(tape, {.name = "block"});
      const Var qkv = research::rope(linear(research::rms_norm(x, b.norm_1), b.qkv), heads);
      x = add(x, linear(attention(qkv, heads), b.out));
      const Var h = linear(research::rms_norm(x, b.norm_2), b.gate_up);
      x = add(x, linear(research::swiglu(h), b.down));
    }
    return linear_cross_entropy(research::rms_norm(x, norm_), head_, tape.input(targets_));
  }
  void upload_placeholder() override { upload(0); }
  // Rows that count up from a random start.
  void upload(int64_t number) {
    Random random(11, static_cast<uint64_t>(number));
    std::vector<int32_t> tokens, targets;
    for (int64_t b = 0; b < B; ++b) {
      const auto start = static_cast<int32_t>(random.next() % V);
      for (int32_t t = 0; t < T; ++t) {
        tokens.push_back((start + t) % V);
        targets.push_back((start + t + 1) % V);
      }
    }
    write<int32_t>(tokens_, tokens);
    write<int32_t>(targets_, targets);
  }

 private:
  struct Block {
    Parameter &norm_1, &qkv, &out, &norm_2, &gate_up, &down;
  };
  Parameters parameters_;
  Parameter &embedding_, &head_, &norm_;
  std::vector<Block> blocks_;
  Tensor tokens_, targets_;  // i32 (B, T)
};

// Runs some steps; returns the losses, then all parameters.
std::vector<std::vector<float>> train(StepRunner& runner, int64_t steps) {
  std::vector<std::vector<float>> bits(1);
  while (runner.steps() < steps) {
    const auto upload = [&](int64_t) { runner.model<Llama>().upload(runner.steps()); };
    bits[0].push_back(runner.step(/*learning_rate=*/3e-3, /*targets=*/B * T, upload).loss);
  }
  for (const Parameter* p : runner.model().parameters()) bits.push_back(read<float>(p->data));
  return bits;
}

}  // namespace research

int main() {
  using namespace research;
  const StepDescription llama{.make_model = make<Llama>};
  const StepPlace place{.device = {DeviceType::cpu}, .threads = 2};
  StepRunner kept(llama, {.policy = Policy{}}, place);
  const auto bits = train(kept, 5);
  std::printf("keeping everything: %zu bytes, loss %.4f, then %.4f\n", kept.stream().memory().peak,
              static_cast<double>(bits[0].front()), static_cast<double>(bits[0].back()));
  bool good = bits[0].back() < bits[0].front();
  for (const std::string& fault : check_ops()) {
    std::printf("WRONG: %s\n", fault.c_str());
    good = false;
  }

  const size_t budget = kept.stream().memory().peak / 4 * 3;
  const std::vector<std::pair<const char*, StepRequest>> ways = {
      {"norms recomputed", {.policy = Policy{.norms = true}}},
      {"activations recomputed", {.policy = Policy{.activations = true}}},
      {"blocks recomputed", {.policy = Policy{.block = true}}},
      {"all offloaded", {.policy = Policy{.offload = Offloading::all, .min_offload_bytes = 1}}},
      {"planned for 3/4", {.choose = Choices{.placement = true}, .budget = budget}}};
  for (const auto& [name, request] : ways) {
    StepRunner runner(llama, request, place);
    const bool equal = train(runner, 5) == bits;
    const size_t peak = runner.stream().memory().peak;
    const bool as_foretold = peak == runner.planned().foretold.memory.peak;
    std::printf("%s: %zu bytes%s, bits %s\n", name, peak,
                as_foretold ? " as foretold" : ", NOT AS FORETOLD", equal ? "equal" : "DIFFER");
    good &= equal && as_foretold;
  }
  return good ? 0 : 1;
}
