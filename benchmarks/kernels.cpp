// Every kernel at the sizes of GPT-2 124M (1024 tokens), and its share of its roofline: the time
// its own cost() would take at this machine's rates of a large copy and a large product, which are
// measured first, divided by the time it takes.
//
//   share         of the roofline; 1 is the best possible
//   gb_per_s      bytes by cost() over the time
//   gflop_per_s   flops by cost() over the time

#include <benchmark/benchmark.h>

#include <cstdio>

#include "spool/kernels/adamw.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"
#include "spool/kernels/reduce.h"
#include "spool/planner/machine.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

constexpr int64_t N = 1024, C = 768, V = 50304, H = 12;

struct Bench {
  Machine machine = measure();
  std::unique_ptr<Stream> stream = open_stream({DeviceType::cpu}, size_t{6} << 30);
  std::vector<Tensor> held;  // what registered kernels point to

  static Machine measure() {
    Machine both = measure_machine({DeviceType::cpu}, DType::f32);
    both.bf16_flops = measure_machine({DeviceType::cpu}, DType::bf16).bf16_flops;
    return both;
  }

  View make(const Shape& shape, DType dtype) {
    Tensor t({shape, dtype}, *stream);
    if (dtype == DType::i32) {
      const std::vector<int32_t> ids(static_cast<size_t>(shape.numel()), 17);
      write<int32_t>(t, ids);
    } else {
      launch(NormalFill{.out = t, .deviation = 0.1f, .seed = held.size()}, *stream);
    }
    held.push_back(t);
    return t;
  }

  template <class Kernel>
  void add(const std::string& title, const Kernel& kernel) {
    const auto run = [this, kernel](benchmark::State& state) {
      launch(kernel, *stream);
      stream->synchronize();
      for (auto _ : state) {
        launch(kernel, *stream);
        stream->synchronize();
      }
      const Cost cost = kernel.cost();
      const auto rate = [](double per_run) {
        return benchmark::Counter(per_run, benchmark::Counter::kIsIterationInvariantRate);
      };
      state.counters["share"] = rate(machine.seconds(cost));
      state.counters["gb_per_s"] = rate(cost.bytes / 1e9);
      state.counters["gflop_per_s"] = rate(cost.flops / 1e9);
    };
    benchmark::RegisterBenchmark(title.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond);
  }
};

void add_products(Bench& b, DType t, const std::string& in) {
  const View x = b.make({N, C}, t), w = b.make({3 * C, C}, t), y = b.make({N, 3 * C}, t);
  const View dw = b.make({3 * C, C}, t), bias = b.make({3 * C}, t);
  b.add("matmul/forward" + in, Matmul{.c = y, .a = x, .b = w, .bias = bias, .b_transposed = true});
  b.add("matmul/backward_input" + in, Matmul{.c = x, .a = y, .b = w});
  b.add("matmul/backward_weight" + in, Matmul{.c = dw, .a = y, .b = x, .a_transposed = true});
  b.add("bias_backward" + in, BiasBackward{.dbias = bias, .dy = y});
}

void add_attention(Bench& b, DType t, const std::string& in) {
  for (const int64_t B : {1, 4}) {
    const int64_t T = N / B;
    const View qkv = b.make({B, T, 3 * C}, t), dqkv = b.make({B, T, 3 * C}, t);
    const View y = b.make({B, T, C}, t), dy = b.make({B, T, C}, t);
    const View lse = b.make({B, H, T}, DType::f32);
    const Heads heads{.query = H, .key = H};
    const std::string at = in + "/T:" + std::to_string(T);
    b.add("attention_forward" + at,
          AttentionForward{.y = y, .lse = lse, .qkv = qkv, .heads = heads, .scale = 0.125});
    b.add("attention_backward" + at, AttentionBackward{.dqkv = dqkv,
                                                       .dy = dy,
                                                       .qkv = qkv,
                                                       .y = y,
                                                       .lse = lse,
                                                       .heads = heads,
                                                       .scale = 0.125});
  }
}

// One more token: the head of one text, and attention in 8 texts, for the cache of fewer would stay
// in the processor's.  They only read, which may be faster than the copy they are held against.
void add_generation(Bench& b, DType t, const std::string& in) {
  constexpr int64_t texts = 8, P = 1024, D = C / H;
  const View x = b.make({1, C}, t), wte = b.make({V, C}, t), logits = b.make({1, V}, t);
  b.add("matmul/one_row" + in, Matmul{.c = logits, .a = x, .b = wte, .b_transposed = true});
  const View keys = b.make({texts, H, P, D}, t), values = b.make({texts, H, P, D}, t);
  const View qkv = b.make({texts, 1, 3 * C}, t), y = b.make({texts, 1, C}, t);
  b.add("cached_attention" + in, CachedAttention{.y = y,
                                                 .keys = keys,
                                                 .values = values,
                                                 .qkv = qkv,
                                                 .heads = {.query = H, .key = H},
                                                 .position = P - 1,
                                                 .scale = 0.125});
}

void add_norms(Bench& b, DType t, const std::string& in) {
  const View x = b.make({N, C}, t), y = b.make({N, C}, t), weight = b.make({C}, t),
             bias = b.make({C}, t), mean = b.make({N}, DType::f32), rstd = b.make({N}, DType::f32);
  b.add(
      "layer_norm_forward" + in,
      LayerNormForward{.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias});
  b.add("layer_norm_backward" + in, LayerNormBackward{.dx = b.make({N, C}, t),
                                                      .dweight = b.make({C}, t),
                                                      .dbias = b.make({C}, t),
                                                      .dy = y,
                                                      .x = x,
                                                      .weight = weight,
                                                      .mean = mean,
                                                      .rstd = rstd});
}

void add_elementwise(Bench& b, DType t, const std::string& in) {
  const View x = b.make({N, 4 * C}, t), y = b.make({N, 4 * C}, t), z = b.make({N, 4 * C}, t);
  b.add("gelu_forward" + in, GeluForward{.y = y, .x = x});
  b.add("gelu_backward" + in, GeluBackward{.dx = z, .dy = y, .x = x});
  b.add("add" + in, Add{.out = z, .a = x, .b = y});
  b.add("scale" + in, Scale{.out = z, .a = x, .factor = 2});
  b.add("fill" + in, Fill{.out = z, .value = 1});
  b.add("cast" + in, Cast{.out = b.make({N, 4 * C}, DType::f32), .in = x});
  const View random = b.make({4}, DType::i32);
  b.add("dropout" + in, Dropout{.y = z, .x = x, .random = random, .p = 0.1f});
}

void add_ends(Bench& b, DType t, const std::string& in) {
  const View tokens = b.make({4, N / 4}, DType::i32), targets = b.make({N}, DType::i32);
  const View wte = b.make({V, C}, t), x = b.make({4, N / 4, C}, t), wpe = b.make({N, C}, t);
  const View dwte = b.make({V, C}, DType::f32), dwpe = b.make({N, C}, t);
  b.add("embedding_forward" + in,
        EmbeddingForward{.y = x, .tokens = tokens, .weight = wte, .positions = wpe});
  b.add("embedding_backward" + in,
        EmbeddingBackward{.dweight = add_to(dwte), .dpositions = dwpe, .dy = x, .tokens = tokens});
  const View logits = b.make({N, V}, t), losses = b.make({N}, DType::f32);
  b.add("cross_entropy/loss" + in,
        CrossEntropy{.logits = logits, .targets = targets, .losses = losses});
  b.add("cross_entropy/gradient" + in,
        CrossEntropy{.logits = logits, .targets = targets, .losses = losses, .gradient = true});
}

void add_optimizer(Bench& b, DType t, const std::string& in) {
  const View w = b.make({V, C}, t), g = b.make({V, C}, t), m = b.make({V, C}, DType::f32),
             v = b.make({V, C}, DType::f32), schedule = b.make({3}, DType::f32),
             clip = b.make({3}, DType::f32);
  const View master = t == DType::bf16 ? b.make({V, C}, DType::f32) : View();
  const std::vector<float> usual{1e-4f, 0.1f, 0.05f}, finite{1, 1, 1};
  launch(Fill{.out = v, .value = 1}, *b.stream);
  b.stream->upload(schedule.data(), usual.data(), schedule.nbytes());
  b.stream->upload(clip.data(), finite.data(), clip.nbytes());
  const AdamW::Entry entry{.parameter = w, .master = master, .m = m, .v = v, .grad = g};
  b.add("adamw" + in, AdamW{.tensors = {entry}, .schedule = schedule, .clip = clip});
  if (t == DType::bf16) {
    const AdamW::Entry alone{.parameter = w, .m = m, .v = v, .grad = g};
    b.add("adamw/stochastic" + in, AdamW{.tensors = {alone},
                                         .random = b.make({4}, DType::i32),
                                         .schedule = schedule,
                                         .clip = clip});
  }
  b.add("squared_norm" + in, SquaredNorm{.out = b.make({1}, DType::f64), .x = {g}});
  b.add("sum_all" + in, SumAll{.out = b.make({1}, DType::f32), .x = g});
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  spool::Bench bench;
  const spool::Machine& m = bench.machine;
  std::printf("this machine: %.1f GFLOP/s f32, %.1f GFLOP/s bf16, %.1f GB/s copied, %s a launch\n",
              m.f32_flops / 1e9, m.bf16_flops / 1e9, m.bytes_per_second / 1e9,
              spool::format_seconds(m.launch_seconds).c_str());
  for (const spool::DType t : {spool::DType::f32, spool::DType::bf16}) {
    const std::string in = std::string("/") + spool::name(t);
    spool::add_products(bench, t, in);
    spool::add_attention(bench, t, in);
    spool::add_generation(bench, t, in);
    spool::add_norms(bench, t, in);
    spool::add_elementwise(bench, t, in);
    spool::add_ends(bench, t, in);
    spool::add_optimizer(bench, t, in);
  }
  benchmark::RunSpecifiedBenchmarks();
}
