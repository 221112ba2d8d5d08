#include "tests/kernels/kernel_samples.h"

#include "spool/kernels/adamw.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/batched_matmul.h"
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
#include "spool/kernels/granule_hashes.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"
#include "spool/kernels/reduce.h"
#include "spool/kernels/sgd.h"
#include "spool/kernels/softmax.h"
#include "spool/kernels/squared_error.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/kernels/sum_rows.h"
#include "tests/kernels/kernel_entry.h"

namespace spool::testing {
namespace {

using namespace entries;

std::vector<Launch> elementwise_kernels() {
  return {
      entry({{"out", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return Fill{.out = g["out"]}; }),
      entry({{"out", {2, 3}}, {"a", {6}}, {"b", {3, 2}, bf16, {absent}}},
            [](const Given& g) { return Add{.out = g["out"], .a = g["a"], .b = g["b"]}; }),
      entry({{"out", {6}}, {"a", {6}}, {"by", {1}, f32, {absent}}},
            [](const Given& g) { return Scale{.out = g["out"], .a = g["a"], .by = g["by"]}; }),
      entry({{"out", {6}, f32, {any_float}}, {"in", {6}, bf16, {any_float}}},
            [](const Given& g) { return Cast{.out = g["out"], .in = g["in"]}; }),
      entry(
          {{"y", {6}}, {"x", {2, 3}}, {"bias", {3}, bf16, {absent}}},
          [](const Given& g) { return GeluForward{.y = g["y"], .x = g["x"], .bias = g["bias"]}; }),
      entry({{"dx", {6}}, {"dy", {6}}, {"x", {6}}},
            [](const Given& g) { return GeluBackward{.dx = g["dx"], .dy = g["dy"], .x = g["x"]}; }),
      entry(
          {{"dx", {6}, bf16, {absent}},
           {"dy", {6}},
           {"x", {2, 3}},
           {"bias", {3}},
           {"dbias", {3}, bf16, {absent}}},
          [](const Given& g) {
            return GeluBackward{
                .dx = g["dx"], .dy = g["dy"], .x = g["x"], .bias = g["bias"], .dbias = g["dbias"]};
          }),
      entry({{"y", {6}}, {"x", {6}}, {"random", {4}, i32}},
            [](const Given& g) {
              return Dropout{.y = g["y"], .x = g["x"], .random = g["random"], .p = 0.5f};
            }),
      entry({{"out", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return NormalFill{.out = g["out"], .first = 4}; }),
  };
}

std::vector<Launch> kernels_of_maps() {
  using functors::Div, functors::Silu;
  return {
      entry({{"y", {2, 3}}, {"x0", {2, 3}}},
            [](const Given& g) { return MapForward<Silu, 1>{.y = g["y"], .x = {g["x0"]}}; }),
      entry({{"y", {2, 3}}, {"x0", {2, 3}}, {"x1", {3}}},
            [](const Given& g) {
              return MapForward<Div, 2>{.y = g["y"], .x = {g["x0"], g["x1"]}};
            }),
      entry({{"dx0", {2, 3}, bf16, {absent}},
             {"dx1", {3}, bf16, {absent}},
             {"dy", {2, 3}},
             {"x1", {3}},
             {"y", {2, 3}}},
            [](const Given& g) {
              const View x1 = g["x1"], y = g["y"];
              return MapBackward<Div, 2>{.dx = {g["dx0"], g["dx1"]},
                                         .dy = g["dy"],
                                         .slots = {View(), x1, y},
                                         .broadcasts = {Broadcast::none, Broadcast::row}};
            }),
  };
}

std::vector<Launch> kernels_of_sums() {
  return {
      entry({{"out", {1}, f32, {any_float}},
             {"x", {6}, bf16, {sets_size, any_float}},
             {"by", {1}, f32, {absent, any_float}}},
            [](const Given& g) { return SumAll{.out = g["out"], .x = g["x"], .by = g["by"]}; }),
      entry({{"out", {1}, f64}, {"x", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return SquaredNorm{.out = g["out"], .x = {g["x"]}}; }),
      entry({{"out", {1}, f64}, {"granules", {6}, f64, {sets_size}}},
            [](const Given& g) { return SumGranules{.out = g["out"], .granules = g["granules"]}; }),
      entry({{"out", {2}, i32}, {"x", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return GranuleHashes{.out = g["out"], .x = {g["x"]}}; }),
      entry({{"out", {6}, f32}, {"own", {2, 3}}},
            [](const Given& g) {
              return SumRanks{.slices = {{.out = g["out"], .own = g["own"]}}, .pieces = {nullptr}};
            }),
      entry({{"dbias", {3}}, {"dy", {2, 2, 3}, bf16, {any_rows}}},
            [](const Given& g) { return BiasBackward{.dbias = g["dbias"], .dy = g["dy"]}; }),
      entry({{"scale", {1}, f32, {any_float}}, {"targets", {6}, i32, {sets_size}}},
            [](const Given& g) {
              return CountTargets{.scale = g["scale"], .targets = g["targets"]};
            }),
      entry({{"logits", {4, 5}},
             {"targets", {4}, i32},
             {"losses", {4}, f32, {absent}},
             {"scale", {1}, f32, {absent}},
             {"upstream", {4}, f32, {absent}}},
            [](const Given& g) {
              return CrossEntropy{.logits = g["logits"],
                                  .targets = g["targets"],
                                  .losses = g["losses"],
                                  .gradient = true,
                                  .scale = g["scale"],
                                  .upstream = g["upstream"],
                                  .options = {.vocabulary = 5}};
            }),
  };
}

std::vector<Launch> kernels_of_copies() {
  return {
      entry({{"out", {3, 4}}, {"in", {3, 5}}},
            [](const Given& g) {
              return StridedCopy{.out = g["out"],
                                 .in = g["in"],
                                 .rows = 3,
                                 .width = 2,
                                 .out_stride = 4,
                                 .in_stride = 5,
                                 .out_first = 2,
                                 .in_first = 3};
            }),
      entry({{"out", {3, 4}}, {"in", {3, 5}}},
            [](const Given& g) {
              return CopyBlocks{.out = g["out"],
                                .in = g["in"],
                                .blocks = {{.times = 3,
                                            .rows = 1,
                                            .width = 2,
                                            .out_step = 4,
                                            .in_step = 5,
                                            .out_first = 2,
                                            .in_first = 3}}};
            }),
      entry({{"out", {5, 2, 3}}, {"in", {2, 3, 5}}},
            [](const Given& g) {
              return Permute{.out = g["out"], .in = g["in"], .order = {2, 0, 1}};
            }),
  };
}

std::vector<Launch> kernels_of_rows() {
  return {
      entry({{"y", {2, 3}}, {"x", {6, 5}}},
            [](const Given& g) { return SumRows{.y = g["y"], .x = g["x"], .C = 5}; }),
      entry({{"dx", {21}}, {"dy", {3}}},
            [](const Given& g) { return Spread{.dx = g["dx"], .dy = g["dy"]}; }),
      entry({{"y", {2, 3, 5}}, {"x", {6, 5}}},
            [](const Given& g) { return SoftmaxForward{.y = g["y"], .x = g["x"]}; }),
      entry({{"dx", {2, 3, 5}}, {"dy", {6, 5}}, {"y", {6, 5}}},
            [](const Given& g) {
              return SoftmaxBackward{.dx = g["dx"], .dy = g["dy"], .y = g["y"]};
            }),
      entry({{"losses", {6}, f32}, {"x", {2, 3, 5}}, {"y", {6, 5}}},
            [](const Given& g) {
              return SquaredErrorForward{.losses = g["losses"], .x = g["x"], .y = g["y"]};
            }),
      entry({{"dx", {6, 5}, bf16, {absent}},
             {"dy", {6, 5}, bf16, {absent}},
             {"x", {2, 3, 5}},
             {"y", {6, 5}},
             {"upstream", {6}, f32},
             {"scale", {1}, f32, {absent}}},
            [](const Given& g) {
              return SquaredErrorBackward{.dx = g["dx"],
                                          .dy = g["dy"],
                                          .x = g["x"],
                                          .y = g["y"],
                                          .upstream = g["upstream"],
                                          .scale = g["scale"]};
            }),
  };
}

std::vector<Launch> kernels_of_layer_norm() {
  return {
      entry({{"y", {2, 3, 5}},
             {"mean", {6}, f32},
             {"rstd", {6}, f32},
             {"x", {2, 3, 5}},
             {"weight", {5}},
             {"bias", {5}, bf16, {absent}}},
            [](const Given& g) {
              return LayerNormForward{.y = g["y"],
                                      .mean = g["mean"],
                                      .rstd = g["rstd"],
                                      .x = g["x"],
                                      .weight = g["weight"],
                                      .bias = g["bias"]};
            }),
      entry({{"dx", {2, 3, 5}, bf16, {absent}},
             {"dweight", {5}, bf16, {absent}},
             {"dbias", {5}, bf16, {absent}},
             {"dy", {2, 3, 5}},
             {"x", {2, 3, 5}},
             {"weight", {5}},
             {"mean", {6}, f32},
             {"rstd", {6}, f32}},
            [](const Given& g) {
              return LayerNormBackward{.dx = g["dx"],
                                       .dweight = g["dweight"],
                                       .dbias = g["dbias"],
                                       .dy = g["dy"],
                                       .x = g["x"],
                                       .weight = g["weight"],
                                       .mean = g["mean"],
                                       .rstd = g["rstd"]};
            }),
  };
}

std::vector<Launch> kernels_of_embedding() {
  return {
      entry({{"y", {2, 3, 5}},
             {"tokens", {2, 3}, i32},
             {"weight", {7, 5}, bf16, {any_rows}},
             {"positions", {5, 5}, bf16, {absent}}},
            [](const Given& g) {
              return EmbeddingForward{.y = g["y"],
                                      .tokens = g["tokens"],
                                      .weight = g["weight"],
                                      .positions = g["positions"],
                                      .first_position = 2};
            }),
      entry({{"dweight", {7, 5}, bf16, {absent, any_rows}},
             {"dpositions", {3, 5}, bf16, {absent}},
             {"dy", {2, 3, 5}},
             {"tokens", {2, 3}, i32}},
            [](const Given& g) {
              return EmbeddingBackward{.dweight = g["dweight"],
                                       .dpositions = g["dpositions"],
                                       .dy = g["dy"],
                                       .tokens = g["tokens"]};
            }),
  };
}

Launch product(bool a_transposed, bool b_transposed) {
  return entry({{"c", {2, 3, 5}},
                {"a", a_transposed ? Shape{4, 6} : Shape{2, 3, 4}},
                {"b", b_transposed ? Shape{5, 4} : Shape{4, 5}},
                {"bias", {5}, bf16, {absent}}},
               [=](const Given& g) {
                 return Matmul{.c = g["c"],
                               .a = g["a"],
                               .b = g["b"],
                               .bias = g["bias"],
                               .a_transposed = a_transposed,
                               .b_transposed = b_transposed};
               });
}

// Products of batches, or with one matrix for a or for b.
Launch batched_product(const Shape& a, const Shape& b, bool transposed) {
  return entry({{"c", {2, 3, 5}}, {"a", a}, {"b", b}}, [=](const Given& g) {
    return BatchedMatmul{.c = g["c"],
                         .a = g["a"],
                         .b = g["b"],
                         .a_transposed = transposed,
                         .b_transposed = transposed};
  });
}

// B = 2, T = 3, H = 4, Hkv = 2, D = 8.
std::vector<Launch> kernels_of_attention() {
  constexpr Heads heads{.query = 4, .key = 2};
  return {
      entry(
          {{"y", {2, 3, 32}},
           {"lse", {2, 4, 3}, f32},
           {"qkv", {2, 3, 64}},
           {"first", {2, 3}, i32, {absent}}},
          [=](const Given& g) {
            return AttentionForward{
                .y = g["y"], .lse = g["lse"], .qkv = g["qkv"], .heads = heads, .first = g["first"]};
          }),
      entry({{"dqkv", {2, 3, 64}, bf16, {absent}},
             {"dy", {2, 3, 32}},
             {"qkv", {2, 3, 64}},
             {"y", {2, 3, 32}},
             {"lse", {2, 4, 3}, f32},
             {"first", {2, 3}, i32, {absent}}},
            [=](const Given& g) {
              return AttentionBackward{.dqkv = g["dqkv"],
                                       .dy = g["dy"],
                                       .qkv = g["qkv"],
                                       .y = g["y"],
                                       .lse = g["lse"],
                                       .heads = heads,
                                       .first = g["first"]};
            }),
      entry({{"y", {2, 3, 32}},
             {"keys", {2, 2, 9, 8}},
             {"values", {2, 2, 9, 8}},
             {"qkv", {2, 3, 64}},
             {"first", {2}, i32, {absent}}},
            [=](const Given& g) {
              return CachedAttention{.y = g["y"],
                                     .keys = g["keys"],
                                     .values = g["values"],
                                     .qkv = g["qkv"],
                                     .heads = heads,
                                     .position = 6,
                                     .first = g["first"]};
            }),
  };
}

// The optimizers' kernels, with an entry for one parameter.
std::vector<Launch> kernels_of_optimizers() {
  return {
      entry({{"clip", {3}, f32}, {"squared", {1}, f64}},
            [](const Given& g) { return ClipFactor{.clip = g["clip"], .squared = g["squared"]}; }),
      entry({{"parameter", {6}},
             {"master", {6}, f32},
             {"m", {6}, f32},
             {"v", {6}, f32},
             {"grad", {6}},
             {"schedule", {3}, f32},
             {"clip", {3}, f32}},
            [](const Given& g) {
              return AdamW{.tensors = {{.parameter = g["parameter"],
                                        .master = g["master"],
                                        .m = g["m"],
                                        .v = g["v"],
                                        .grad = g["grad"]}},
                           .schedule = g["schedule"],
                           .clip = g["clip"]};
            }),
      entry({{"parameter", {6}},
             {"master", {6}, f32},
             {"momentum", {6}, f32},
             {"grad", {6}},
             {"schedule", {1}, f32},
             {"clip", {3}, f32}},
            [](const Given& g) {
              return Sgd{.tensors = {{.parameter = g["parameter"],
                                      .master = g["master"],
                                      .momentum = g["momentum"],
                                      .grad = g["grad"]}},
                         .schedule = g["schedule"],
                         .clip = g["clip"],
                         .momentum = 0.9f};
            }),
  };
}

}  // namespace

std::vector<Launch> all_kernels() {
  std::vector<Launch> all = elementwise_kernels();
  for (const auto& more :
       {kernels_of_maps(), kernels_of_sums(), kernels_of_copies(), kernels_of_rows(),
        kernels_of_layer_norm(), kernels_of_llama(), kernels_of_embedding(), kernels_of_attention(),
        kernels_of_parts(), kernels_of_optimizers()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) all.push_back(product(a, b));
  }
  all.push_back(batched_product({2, 3, 4}, {2, 4, 5}, false));
  all.push_back(batched_product({4, 3}, {2, 5, 4}, true));
  all.push_back(batched_product({2, 4, 3}, {5, 4}, true));
  return all;
}

}  // namespace spool::testing
