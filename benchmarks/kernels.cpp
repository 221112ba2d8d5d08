// Every kernel at the sizes of GPT-2 124M, and its share of its roofline: the time its own cost()
// would take at this device's rates of a large copy and a large product, which are measured first,
// divided by the time it takes.
//
//   --device=cpu      1024 tokens; or cuda, 32768 tokens
//   --rows=N          that many tokens instead
//
//   us            the median
//   share         of the roofline; 1 is the best possible
//   of_copy       bytes by cost() over the time, of the rate of the large copy
//   gb_per_s      likewise, as it is
//   gflop_per_s   flops by cost() over the time
//   host_us       of `launch`: what the host takes to enqueue a kernel that has nothing to do
//
// On cuda the time is that of many in a row, over as many sets of arguments as its cache cannot
// hold; on the cpu, of one by itself.

#include <benchmark/benchmark.h>

#include <cstdio>

#include "shared/kernel_bench.h"
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
#include "spool/kernels/reduce.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using benchmarks::Arguments;
using benchmarks::Bench;
using benchmarks::seconds_of;

constexpr int64_t C = 768, V = 50304, H = 12, parameters_of_124m = 162'000 * C;

// What the host takes to enqueue a kernel with nothing to do.
void add_launch(Bench& b) {
  const auto run = [&b](benchmark::State& state) {
    Arguments arguments(*b.stream);
    const Fill nothing{.out = arguments.make({1}, DType::f32)};
    std::vector<double> host;
    constexpr int times = 200;
    for (auto _ : state) {
      const double both = seconds_of([&] {
        host.push_back(seconds_of([&] {
                         for (int i = 0; i < times; ++i) launch(nothing, *b.stream);
                       }) /
                       times);
        b.stream->synchronize();
      });
      state.SetIterationTime(both / times);
    }
    state.counters["host_us"] = benchmarks::median(host) * 1e6;
  };
  benchmark::RegisterBenchmark("launch", run)
      ->UseManualTime()
      ->Iterations(50)
      ->Unit(benchmark::kMicrosecond);
}

// (N, in) by (out, in) transposed.
void add_product(Bench& b, DType t, const std::string& in, int64_t from, int64_t to) {
  const Shape X{b.N, from}, W{to, from}, Y{b.N, to};
  b.add("matmul/forward" + in, [=](Arguments& a) {
    return Matmul{.c = a.make(Y, t),
                  .a = a.make(X, t),
                  .b = a.make(W, t),
                  .bias = a.make({to}, t),
                  .b_transposed = true};
  });
  b.add("matmul/backward_input" + in, [=](Arguments& a) {
    return Matmul{.c = a.make(X, t), .a = a.make(Y, t), .b = a.make(W, t)};
  });
  b.add("matmul/backward_weight" + in, [=](Arguments& a) {
    return Matmul{.c = a.make(W, t), .a = a.make(Y, t), .b = a.make(X, t), .a_transposed = true};
  });
}

void add_products(Bench& b, DType t, const std::string& in) {
  add_product(b, t, in, C, 3 * C);
  if (b.on_cuda()) {
    add_product(b, t, in + "/projection", C, C);
    add_product(b, t, in + "/fc", C, 4 * C);
    add_product(b, t, in + "/fc_projection", 4 * C, C);
    add_product(b, t, in + "/head", C, V);
  }
  b.add("bias_backward" + in, [=, N = b.N](Arguments& a) {
    return BiasBackward{.dbias = a.make({3 * C}, t), .dy = a.make({N, 3 * C}, t)};
  });
}

void add_attention(Bench& b, DType t, const std::string& in) {
  for (const int64_t T : {std::min<int64_t>(b.N, 1024), std::min<int64_t>(b.N, 256)}) {
    const Shape QKV{b.N / T, T, 3 * C}, Y{b.N / T, T, C}, LSE{b.N / T, H, T};
    const Heads heads{.query = H, .key = H};
    const std::string at = in + "/T:" + std::to_string(T);
    b.add("attention_forward" + at, [=](Arguments& a) {
      return AttentionForward{.y = a.make(Y, t),
                              .lse = a.make(LSE, DType::f32),
                              .qkv = a.make(QKV, t),
                              .heads = heads,
                              .scale = 0.125};
    });
    b.add("attention_backward" + at, [=](Arguments& a) {
      return AttentionBackward{.dqkv = a.make(QKV, t),
                               .dy = a.make(Y, t),
                               .qkv = a.make(QKV, t),
                               .y = a.make(Y, t),
                               .lse = a.make(LSE, DType::f32),
                               .heads = heads,
                               .scale = 0.125};
    });
  }
}

// One more token: the head of one text, and attention in 8 texts, for the cache of fewer would stay
// in the processor's.  They only read, which may be faster than the copy they are held against.
void add_generation(Bench& b, DType t, const std::string& in) {
  constexpr int64_t texts = 8, P = 1024, D = C / H;
  b.add("matmul/one_row" + in, [=](Arguments& a) {
    return Matmul{.c = a.make({1, V}, t),
                  .a = a.make({1, C}, t),
                  .b = a.make({V, C}, t),
                  .b_transposed = true};
  });
  b.add("cached_attention" + in, [=](Arguments& a) {
    return CachedAttention{.y = a.make({texts, 1, C}, t),
                           .keys = a.make({texts, H, P, D}, t),
                           .values = a.make({texts, H, P, D}, t),
                           .qkv = a.make({texts, 1, 3 * C}, t),
                           .heads = {.query = H, .key = H},
                           .position = P - 1,
                           .scale = 0.125};
  });
}

void add_norms(Bench& b, DType t, const std::string& in) {
  const Shape X{b.N, C};
  const int64_t N = b.N;
  b.add("layer_norm_forward" + in, [=](Arguments& a) {
    return LayerNormForward{.y = a.make(X, t),
                            .mean = a.make({N}, DType::f32),
                            .rstd = a.make({N}, DType::f32),
                            .x = a.make(X, t),
                            .weight = a.make({C}, t),
                            .bias = a.make({C}, t)};
  });
  b.add("layer_norm_backward" + in, [=](Arguments& a) {
    return LayerNormBackward{.dx = a.make(X, t),
                             .dweight = a.make({C}, t),
                             .dbias = a.make({C}, t),
                             .dy = a.make(X, t),
                             .x = a.make(X, t),
                             .weight = a.make({C}, t),
                             .mean = a.make({N}, DType::f32),
                             .rstd = a.make({N}, DType::f32)};
  });
}

void add_elementwise(Bench& b, DType t, const std::string& in) {
  const Shape X{b.N, 4 * C};
  b.add("gelu_forward" + in,
        [=](Arguments& a) { return GeluForward{.y = a.make(X, t), .x = a.make(X, t)}; });
  b.add("gelu_backward" + in, [=](Arguments& a) {
    return GeluBackward{.dx = a.make(X, t), .dy = a.make(X, t), .x = a.make(X, t)};
  });
  b.add("add" + in, [=](Arguments& a) {
    return Add{.out = a.make(X, t), .a = a.make(X, t), .b = a.make(X, t)};
  });
  b.add("scale" + in,
        [=](Arguments& a) { return Scale{.out = a.make(X, t), .a = a.make(X, t), .factor = 2}; });
  b.add("fill" + in, [=](Arguments& a) { return Fill{.out = a.make(X, t), .value = 1}; });
  b.add("cast" + in,
        [=](Arguments& a) { return Cast{.out = a.make(X, DType::f32), .in = a.make(X, t)}; });
  b.add("dropout" + in, [=](Arguments& a) {
    return Dropout{
        .y = a.make(X, t), .x = a.make(X, t), .random = a.make({4}, DType::i32), .p = 0.1f};
  });
}

void add_ends(Bench& b, DType t, const std::string& in) {
  const int64_t N = b.N, T = std::min<int64_t>(N / 4, 1024);
  const Shape ids{N / T, T}, X{N / T, T, C};
  b.add("embedding_forward" + in, [=](Arguments& a) {
    return EmbeddingForward{.y = a.make(X, t),
                            .tokens = a.make(ids, DType::i32),
                            .weight = a.make({V, C}, t),
                            .positions = a.make({T, C}, t)};
  });
  b.add("embedding_backward" + in, [=](Arguments& a) {
    return EmbeddingBackward{.dweight = add_to(a.make({V, C}, DType::f32)),
                             .dpositions = a.make({T, C}, t),
                             .dy = a.make(X, t),
                             .tokens = a.make(ids, DType::i32)};
  });
  const auto entropy = [=](Arguments& a) {
    return CrossEntropy{.logits = a.make({N, V}, t),
                        .targets = a.make({N}, DType::i32),
                        .losses = a.make({N}, DType::f32)};
  };
  b.add("cross_entropy/loss" + in, entropy);
  b.add("cross_entropy/gradient" + in, [=](Arguments& a) {
    CrossEntropy with = entropy(a);
    with.gradient = true;
    return with;
  });
}

// On cuda all parameters as if they were one.
void add_optimizer(Bench& b, DType t, const std::string& in) {
  const Shape W{b.on_cuda() ? parameters_of_124m : V * C};
  const auto adamw = [=](Arguments& a, bool masters) {
    const View v = a.make(W, DType::f32);
    launch(Fill{.out = v, .value = 1}, a.stream());
    return AdamW{.tensors = {AdamW::Entry{.parameter = a.make(W, t),
                                          .master = masters ? a.make(W, DType::f32) : View(),
                                          .m = a.make(W, DType::f32),
                                          .v = v,
                                          .grad = a.make(W, t)}},
                 .schedule = a.holding({1e-4f, 0.1f, 0.05f}),
                 .clip = a.holding({1, 1, 1})};
  };
  b.add("adamw" + in, [=](Arguments& a) { return adamw(a, /*masters=*/t == DType::bf16); });
  if (t == DType::bf16) {
    b.add("adamw/stochastic" + in, [=](Arguments& a) {
      AdamW rounds = adamw(a, /*masters=*/false);
      rounds.random = a.make({4}, DType::i32);
      return rounds;
    });
  }
  b.add("squared_norm" + in, [=](Arguments& a) {
    return SquaredNorm{.out = a.make({1}, DType::f64), .x = {a.make(W, t)}};
  });
  b.add("sum_all" + in,
        [=](Arguments& a) { return SumAll{.out = a.make({1}, DType::f32), .x = a.make(W, t)}; });
}

void add_all(Bench& b) {
  for (const DType t : {DType::f32, DType::bf16}) {
    const std::string in = std::string("/") + name(t);
    add_products(b, t, in);
    add_attention(b, t, in);
    add_generation(b, t, in);
    add_norms(b, t, in);
    add_elementwise(b, t, in);
    add_ends(b, t, in);
    add_optimizer(b, t, in);
  }
  add_launch(b);
}

// For whoever reads the table, and whoever reads the JSON.
void say_what_it_does(const Machine& m) {
  std::fprintf(stderr,
               "this machine: %.1f GFLOP/s f32, %.1f GFLOP/s bf16, %.1f GB/s copied, %s a launch\n",
               m.f32_flops / 1e9, m.bf16_flops / 1e9, m.bytes_per_second / 1e9,
               format_seconds(m.launch_seconds).c_str());
  benchmark::AddCustomContext("f32_gflop_per_s", std::to_string(m.f32_flops / 1e9));
  benchmark::AddCustomContext("bf16_gflop_per_s", std::to_string(m.bf16_flops / 1e9));
  benchmark::AddCustomContext("copied_gb_per_s", std::to_string(m.bytes_per_second / 1e9));
  benchmark::AddCustomContext("launch_us", std::to_string(m.launch_seconds * 1e6));
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  const std::string device = benchmarks::take_argument(argc, argv, "device", "cpu");
  const std::string rows = benchmarks::take_argument(argc, argv, "rows", "0");
  return benchmarks::report_errors([&] {
    benchmark::Initialize(&argc, argv);
    const auto bench = benchmarks::open_bench(parse_device(device), std::stoll(rows));
    say_what_it_does(bench->machine);
    add_all(*bench);
    benchmark::RunSpecifiedBenchmarks();
  });
}
