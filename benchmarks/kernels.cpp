// Measures every kernel at the sizes of GPT-2 124M, those of a step of Llama 3.2 1B and Qwen3
// 0.6B at theirs (shared/llama_kernels.cpp), and those of ranks that train together at the size of
// a bucket or of a part of the vocabulary (shared/rank_kernels.cpp), and its share of the roofline:
// the time that its cost() would take at this device's rates for a large copy and a large product,
// divided by the measured time.  The program measures these rates first.
//
//   --device=cpu      1024 tokens (the default); cuda: 32768 tokens
//   --rows=N          another number of tokens, such as 256, from which the sizes follow
//
//   us            median time
//   share         of the roofline; 1 is the best possible
//   of_copy       rate of the bytes of cost(), as a share of the rate of the large copy
//   gb_per_s      rate of the bytes of cost()
//   gflop_per_s   rate of the flops of cost()
//   of_unit       of products in bf16 on a processor with a tile unit, or where it is emulated: the
//                 same rate, as a share of the unit's from registers, on as many threads
//   host_us       of `launch`: host time to enqueue a kernel that has nothing to do
//
// On the CPU a kernel is timed alone.  On cuda many are enqueued in a row, over several sets of
// arguments that together exceed the cache.

#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdio>

#include "shared/attention_bench.h"
#include "shared/kernel_bench.h"
#include "shared/llama_kernels.h"
#include "shared/rank_kernels.h"
#include "spool/kernels/adamw.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/clip_factor.h"
#include "spool/kernels/copy.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/functors.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/reduce.h"
#include "spool/kernels/sgd.h"
#include "spool/kernels/softmax.h"
#include "spool/kernels/sum_rows.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using benchmarks::add_attention;
using benchmarks::Arguments;
using benchmarks::AttentionBench;
using benchmarks::Bench;
using benchmarks::seconds_of;

constexpr int64_t C = 768, V = 50304, H = 12, parameters_of_124m = 162'000 * C;

// The host time to enqueue a kernel that has nothing to do.
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

// A linear layer: x (N, from), weight (to, from), y (N, to).
void add_product(Bench& b, DType t, const std::string& suffix, int64_t from, int64_t to) {
  const Shape X{b.N, from}, W{to, from}, Y{b.N, to};
  b.add("matmul/forward" + suffix, [=](Arguments& a) {
    return Matmul{.c = a.make(Y, t),
                  .a = a.make(X, t),
                  .b = a.make(W, t),
                  .bias = a.make({to}, t),
                  .b_transposed = true};
  });
  b.add("matmul/backward_input" + suffix, [=](Arguments& a) {
    return Matmul{.c = a.make(X, t), .a = a.make(Y, t), .b = a.make(W, t)};
  });
  b.add("matmul/backward_weight" + suffix, [=](Arguments& a) {
    return Matmul{.c = a.make(W, t), .a = a.make(Y, t), .b = a.make(X, t), .a_transposed = true};
  });
}

// Every linear layer, and the head.  The head's weight is the embedding's, too: in a step its
// gradient is in f32.
void add_products(Bench& b, DType t, const std::string& suffix) {
  add_product(b, t, suffix, C, 3 * C);
  add_product(b, t, suffix + "/projection", C, C);
  add_product(b, t, suffix + "/fc", C, 4 * C);
  add_product(b, t, suffix + "/fc_projection", 4 * C, C);
  add_product(b, t, suffix + "/head", C, V);
  if (t == DType::bf16) {
    b.add("matmul/backward_weight" + suffix + "/head/f32_gradient", [=, N = b.N](Arguments& a) {
      return Matmul{.c = a.make({V, C}, DType::f32),
                    .a = a.make({N, V}, t),
                    .b = a.make({N, C}, t),
                    .a_transposed = true};
    });
  }
  b.add("bias_backward" + suffix, [=, N = b.N](Arguments& a) {
    return BiasBackward{.dbias = a.make({3 * C}, t), .dy = a.make({N, 3 * C}, t)};
  });
}

void add_attentions(Bench& b, DType t, const std::string& suffix) {
  AttentionBench attention{.dtype = t, .heads = {.query = H, .key = H}, .D = C / H};
  for (const int64_t T : {std::min<int64_t>(b.N, 1024), std::min<int64_t>(b.N, 256)}) {
    attention.suffix = suffix + "/T:" + std::to_string(T);
    attention.rows = b.N / T, attention.T = T;
    add_attention(b, attention);
  }
  for (const int64_t documents : {1, 8}) {
    attention.suffix = suffix + "/T:2048/documents:" + std::to_string(documents);
    attention.rows = std::max<int64_t>(1, b.N / 2048), attention.T = 2048;
    attention.documents = documents;
    add_attention(b, attention);
  }
}

// Kernels for generating one token: the head for as many texts as there are rows, and attention for
// 8 texts, as the key-value cache of fewer would fit into the processor's cache.  These kernels
// only read, which may be faster than the copy that they are compared with.
void add_generation(Bench& b, DType t, const std::string& suffix) {
  constexpr int64_t texts = 8, P = 1024, D = C / H;
  for (const int64_t M : {1, 4, 8, 16, 64, 128}) {
    b.add("matmul/few_rows" + suffix + "/M:" + std::to_string(M), [=](Arguments& a) {
      return Matmul{.c = a.make({M, V}, t),
                    .a = a.make({M, C}, t),
                    .b = a.make({V, C}, t),
                    .b_transposed = true};
    });
  }
  b.add("cached_attention" + suffix, [=](Arguments& a) {
    return CachedAttention{.y = a.make({texts, 1, C}, t),
                           .keys = a.make({texts, H, P, D}, t),
                           .values = a.make({texts, H, P, D}, t),
                           .qkv = a.make({texts, 1, 3 * C}, t),
                           .heads = {.query = H, .key = H},
                           .position = P - 1,
                           .scale = 0.125};
  });
}

void add_norms(Bench& b, DType t, const std::string& suffix) {
  const Shape X{b.N, C};
  const int64_t N = b.N;
  b.add("layer_norm_forward" + suffix, [=](Arguments& a) {
    return LayerNormForward{.y = a.make(X, t),
                            .mean = a.make({N}, DType::f32),
                            .rstd = a.make({N}, DType::f32),
                            .x = a.make(X, t),
                            .weight = a.make({C}, t),
                            .bias = a.make({C}, t)};
  });
  b.add("layer_norm_backward" + suffix, [=](Arguments& a) {
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

void add_maps(Bench& b, DType t, const std::string& suffix) {
  const Shape X{b.N, 4 * C};
  using Silu = functors::Silu;
  b.add("silu_forward" + suffix,
        [=](Arguments& a) { return MapForward<Silu, 1>{.y = a.make(X, t), .x = {a.make(X, t)}}; });
  b.add("silu_backward" + suffix, [=](Arguments& a) {
    const View dx = a.make(X, t), dy = a.make(X, t), x = a.make(X, t);
    return MapBackward<Silu, 1>{.dx = {dx}, .dy = dy, .slots = {x}};
  });
  using Mul = functors::Mul;
  b.add("mul_forward" + suffix, [=](Arguments& a) {
    return MapForward<Mul, 2>{.y = a.make(X, t), .x = {a.make(X, t), a.make(X, t)}};
  });
  b.add("mul_row_forward" + suffix, [=](Arguments& a) {
    return MapForward<Mul, 2>{.y = a.make(X, t), .x = {a.make(X, t), a.make({4 * C}, t)}};
  });
  b.add("mul_row_backward" + suffix, [=](Arguments& a) {
    const View dx = a.make(X, t), dw = a.make({4 * C}, t);
    const View dy = a.make(X, t), x = a.make(X, t), w = a.make({4 * C}, t);
    return MapBackward<Mul, 2>{
        .dx = {dx, dw}, .dy = dy, .slots = {x, w}, .broadcasts = {Broadcast::none, Broadcast::row}};
  });
  b.add("softmax_forward" + suffix,
        [=](Arguments& a) { return SoftmaxForward{.y = a.make(X, t), .x = a.make(X, t)}; });
  b.add("softmax_backward" + suffix, [=](Arguments& a) {
    return SoftmaxBackward{.dx = a.make(X, t), .dy = a.make(X, t), .y = a.make(X, t)};
  });
  b.add("sum_rows" + suffix, [=](Arguments& a) {
    return SumRows{.y = a.make({X[0]}, t), .x = a.make(X, t), .C = X[1]};
  });
  b.add("transpose" + suffix, [=](Arguments& a) {
    return Permute{.out = a.make({X[1], X[0]}, t), .in = a.make(X, t), .order = {1, 0}};
  });
}

void add_elementwise(Bench& b, DType t, const std::string& suffix) {
  const Shape X{b.N, 4 * C};
  b.add("gelu_forward" + suffix,
        [=](Arguments& a) { return GeluForward{.y = a.make(X, t), .x = a.make(X, t)}; });
  b.add("gelu_backward" + suffix, [=](Arguments& a) {
    return GeluBackward{.dx = a.make(X, t), .dy = a.make(X, t), .x = a.make(X, t)};
  });
  b.add("add" + suffix, [=](Arguments& a) {
    return Add{.out = a.make(X, t), .a = a.make(X, t), .b = a.make(X, t)};
  });
  b.add("scale" + suffix,
        [=](Arguments& a) { return Scale{.out = a.make(X, t), .a = a.make(X, t), .factor = 2}; });
  b.add("fill" + suffix, [=](Arguments& a) { return Fill{.out = a.make(X, t), .value = 1}; });
  b.add("cast" + suffix,
        [=](Arguments& a) { return Cast{.out = a.make(X, DType::f32), .in = a.make(X, t)}; });
  b.add("dropout" + suffix, [=](Arguments& a) {
    return Dropout{
        .y = a.make(X, t), .x = a.make(X, t), .random = a.make({4}, DType::i32), .p = 0.1f};
  });
}

void add_embedding_and_loss(Bench& b, DType t, const std::string& suffix) {
  const int64_t N = b.N, T = std::clamp<int64_t>(N / 4, 1, 1024);
  const Shape ids{N / T, T}, X{N / T, T, C};
  b.add("embedding_forward" + suffix, [=](Arguments& a) {
    return EmbeddingForward{.y = a.make(X, t),
                            .tokens = a.make(ids, DType::i32),
                            .weight = a.make({V, C}, t),
                            .positions = a.make({T, C}, t)};
  });
  b.add("embedding_backward" + suffix, [=](Arguments& a) {
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
  b.add("cross_entropy/loss" + suffix, entropy);
  b.add("cross_entropy/gradient" + suffix, [=](Arguments& a) {
    CrossEntropy with_gradient = entropy(a);
    with_gradient.gradient = true;
    return with_gradient;
  });
}

// On cuda a single parameter has the size of all of the model's.
void add_optimizer(Bench& b, DType t, const std::string& suffix) {
  const Shape W{b.on_cuda() ? parameters_of_124m : V * C};
  const auto adamw = [=](Arguments& a, bool masters) {
    const View v = a.make(W, DType::f32);
    launch(Fill{.out = v, .value = 1}, a.stream());
    return AdamW{.tensors = {AdamW::Entry{.parameter = a.make(W, t),
                                          .master = masters ? a.make(W, DType::f32) : View(),
                                          .m = a.make(W, DType::f32),
                                          .v = v,
                                          .grad = a.make(W, t)}},
                 .schedule = a.with_values({1e-4f, 0.1f, 0.05f}),
                 .clip = a.with_values({1, 1, 1})};
  };
  b.add("adamw" + suffix, [=](Arguments& a) { return adamw(a, /*masters=*/t == DType::bf16); });
  if (t == DType::bf16) {
    b.add("adamw/stochastic" + suffix, [=](Arguments& a) {
      AdamW stochastic = adamw(a, /*masters=*/false);
      stochastic.random = a.make({4}, DType::i32);
      return stochastic;
    });
  }
  b.add("sgd/momentum" + suffix, [=](Arguments& a) {
    return Sgd{.tensors = {{.parameter = a.make(W, t),
                            .master = t == DType::bf16 ? a.make(W, DType::f32) : View(),
                            .momentum = a.make(W, DType::f32),
                            .grad = a.make(W, t)}},
               .schedule = a.with_values({1e-4f}),
               .clip = a.with_values({1, 1, 1}),
               .momentum = 0.9f};
  });
  b.add("squared_norm" + suffix, [=](Arguments& a) {
    const Shape granules{ceil_div(W.numel(), norm_granule)};
    return SquaredNorm{.out = a.make(granules, DType::f64), .x = {a.make(W, t)}};
  });
  b.add("sum_all" + suffix,
        [=](Arguments& a) { return SumAll{.out = a.make({1}, DType::f32), .x = a.make(W, t)}; });
}

// What clips the gradients of all parameters, from the sums of their squares.
void add_clipping(Bench& b) {
  const Shape granules{ceil_div(parameters_of_124m, norm_granule)};
  b.add("sum_granules", [=](Arguments& a) {
    return SumGranules{.out = a.make({1}, DType::f64), .granules = a.make(granules, DType::f64)};
  });
  b.add("clip_factor", [](Arguments& a) {
    return ClipFactor{
        .clip = a.make({3}, DType::f32), .squared = a.make({1}, DType::f64), .limit = 1};
  });
}

void add_all(Bench& b) {
  for (const DType t : {DType::f32, DType::bf16}) {
    const std::string suffix = std::string("/") + name(t);
    add_products(b, t, suffix);
    add_attentions(b, t, suffix);
    add_generation(b, t, suffix);
    add_norms(b, t, suffix);
    add_elementwise(b, t, suffix);
    add_maps(b, t, suffix);
    add_embedding_and_loss(b, t, suffix);
    add_optimizer(b, t, suffix);
    benchmarks::add_llama_kernels(b, t, suffix);
  }
  add_clipping(b);
  benchmarks::add_rank_kernels(b);
  add_launch(b);
}

constexpr const char* default_rows = "default";

// The tokens that --rows asks for; 0: the device's default.
int64_t parse_rows(const std::string& text) {
  if (text == default_rows) return 0;
  int64_t rows = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, rows);
  check(parsed == end && error == std::errc() && rows > 0,
        "--rows is a positive number of tokens, such as 256, not \"", text, "\"");
  return rows;
}

// Prints the machine's rates, and adds them to the JSON.
void report_machine(const Machine& m) {
  std::fprintf(stderr,
               "this machine: %.1f GFLOP/s f32, %.1f GFLOP/s bf16, %.1f GB/s copied, %s a launch\n",
               m.f32_flops / 1e9, m.bf16_flops / 1e9, m.bytes_per_second / 1e9,
               format_seconds(m.launch_seconds).c_str());
  benchmark::AddCustomContext("f32_gflop_per_s", std::to_string(m.f32_flops / 1e9));
  benchmark::AddCustomContext("bf16_gflop_per_s", std::to_string(m.bf16_flops / 1e9));
  benchmark::AddCustomContext("copied_gb_per_s", std::to_string(m.bytes_per_second / 1e9));
  benchmark::AddCustomContext("launch_us", std::to_string(m.launch_seconds * 1e6));
}

void report_unit(double flops) {
  if (flops == 0) return;
  std::fprintf(stderr, "its tile units: %.1f GFLOP/s bf16 from registers\n", flops / 1e9);
  benchmark::AddCustomContext("unit_gflop_per_s", std::to_string(flops / 1e9));
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  const std::string device = benchmarks::take_argument(argc, argv, "device", "cpu");
  const std::string rows = benchmarks::take_argument(argc, argv, "rows", default_rows);
  return benchmarks::report_errors([&] {
    benchmark::Initialize(&argc, argv);
    const auto bench = benchmarks::open_bench(parse_device(device), parse_rows(rows));
    report_machine(bench->machine);
    report_unit(bench->unit_flops);
    add_all(*bench);
    benchmark::RunSpecifiedBenchmarks();
  });
}
