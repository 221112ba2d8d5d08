#include "tests/autograd/op_samples.h"

#include "spool/autograd/ops.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {
namespace {

using Operands = std::vector<Operand>;

const Var& var(const Operand& operand) { return *operand.var; }

SampleInput tokens(const Shape& shape, int32_t below) { return {.shape = shape, .below = below}; }
SampleInput weight(const Shape& shape) { return {.shape = shape, .parameter = true}; }
SampleInput value(const Shape& shape) { return {.shape = shape}; }

OpSample loss_sample(const std::string& name, const LossOptions& options, int64_t columns = 11) {
  return {.name = "linear_cross_entropy_" + name,
          .inputs = {{.shape = {2, 5, 6}, .large = {600, 300}},
                     {.shape = {columns, 6}, .parameter = true, .large = {400, 300}},
                     {.shape = {2, 5}, .below = 11, .ignored_every = 4, .large = {600}}},
          .apply =
              [=](const Operands& x) {
                return std::vector{linear_cross_entropy(var(x[0]), x[1], var(x[2]), options)};
              },
          .chunks = 7};
}

void add_losses(std::vector<OpSample>& all) {
  all.push_back(loss_sample("mean", {}));
  all.push_back(loss_sample("sum", {.reduction = Reduction::sum}));
  all.push_back(loss_sample("none", {.reduction = Reduction::none}));
  all.push_back(loss_sample("padded", {.options = {.vocabulary = 11}}, 16));
  all.push_back(loss_sample("smoothed", {.options = {.label_smoothing = 0.1f}}));
  all.push_back(loss_sample("z_loss", {.options = {.z_loss = 0.01f}}));
  all.push_back(loss_sample("soft_cap", {.options = {.soft_cap = 3}}));
}

void add_elementwise(std::vector<OpSample>& all) {
  const auto one = [&](const std::string& name, auto apply) {
    all.push_back({.name = name,
                   .inputs = {{.shape = {3, 2, 7}, .large = {600, 300}}},
                   .apply = [=](const Operands& x) { return std::vector{apply(var(x[0]))}; }});
  };
  one("gelu", [](const Var& x) { return gelu(x); });
  one("gelu_exact", [](const Var& x) { return gelu(x, GeluForm::exact); });
  all.push_back({.name = "gelu_bias",
                 .inputs = {{.shape = {3, 2, 7}, .large = {600, 300}},
                            {.shape = {7}, .parameter = true, .large = {300}}},
                 .apply = [](const Operands& x) {
                   return std::vector{gelu(var(x[0]), x[1], GeluForm::exact)};
                 }});
  one("scale", [](const Var& x) { return scale(x, -2.5); });
  one("dropout", [](const Var& x) { return dropout(x, 0.3f); });
  all.push_back(
      {.name = "add", .inputs = {value({4, 3}), value({4, 3})}, .apply = [](const Operands& x) {
         return std::vector{add(var(x[0]), var(x[1]))};
       }});
  all.push_back(
      {.name = "add_to_itself", .inputs = {value({4, 3})}, .apply = [](const Operands& x) {
         return std::vector{add(var(x[0]), var(x[0]))};
       }});
}

void add_attention(std::vector<OpSample>& all) {
  const auto sample = [&](const std::string& name, int64_t T, Heads heads, int64_t D) {
    const int64_t groups = heads.query + 2 * heads.key;
    const Shape large = heads.query == heads.key ? Shape() : Shape{2, 200, groups * 64};
    all.push_back(
        {.name = name,
         .inputs = {{.shape = {2, T, groups * D}, .large = large}},
         .apply = [=](const Operands& x) { return std::vector{attention(var(x[0]), heads)}; }});
  };
  sample("attention", 9, {.query = 2, .key = 2}, 4);
  sample("attention_one_token", 1, {.query = 1, .key = 1}, 3);
  sample("attention_grouped", 7, {.query = 4, .key = 2}, 5);
}

void add_adapters(std::vector<OpSample>& all) {
  all.push_back(
      {.name = "linear_with_low_rank",
       .inputs = {{.shape = {2, 3, 5}, .large = {300, 2, 300}},
                  {.shape = {9, 5}, .parameter = true, .large = {400, 300}},
                  {.shape = {9}, .parameter = true, .large = {400}},
                  {.shape = {6, 5}, .parameter = true, .large = {6, 300}},
                  {.shape = {6, 3}, .parameter = true}},
       .apply = [](const Operands& x) {
         const LowRank adapter{.a = x[3], .b = x[4], .columns = {{1, 3}, {4, 8}}, .scale = -0.75};
         return std::vector{linear(var(x[0]), x[1], x[2], adapter)};
       }});
  all.push_back(
      {.name = "linear_with_low_rank_and_dropout",
       .inputs = {{.shape = {4, 5}, .large = {600, 300}},
                  {.shape = {7, 5}, .parameter = true, .large = {400, 300}},
                  {.shape = {4, 5}, .parameter = true, .large = {4, 300}},
                  {.shape = {7, 2}, .parameter = true}},
       .apply = [](const Operands& x) {
         const LowRank adapter{
             .a = x[2], .b = x[3], .columns = {{0, 3}, {3, 7}}, .scale = 2, .dropout = 0.3f};
         return std::vector{linear(var(x[0]), x[1], adapter)};
       }});
}

void add_layers(std::vector<OpSample>& all) {
  all.push_back(
      {.name = "linear",
       .inputs = {{.shape = {2, 3, 5}, .large = {600, 300}},
                  {.shape = {4, 5}, .parameter = true, .large = {400, 300}},
                  {.shape = {4}, .parameter = true, .large = {400}}},
       .apply = [](const Operands& x) { return std::vector{linear(var(x[0]), x[1], x[2])}; }});
  all.push_back({.name = "linear_without_bias",
                 .inputs = {value({6, 5}), weight({4, 5})},
                 .apply = [](const Operands& x) { return std::vector{linear(var(x[0]), x[1])}; }});
  all.push_back({.name = "linear_of_two_values",
                 .inputs = {value({6, 5}), value({4, 5})},
                 .apply = [](const Operands& x) { return std::vector{linear(var(x[0]), x[1])}; }});
  all.push_back(
      {.name = "layer_norm",
       .inputs = {{.shape = {2, 3, 8}, .large = {600, 300}},
                  {.shape = {8}, .parameter = true, .large = {300}},
                  {.shape = {8}, .parameter = true, .large = {300}}},
       .apply = [](const Operands& x) { return std::vector{layer_norm(var(x[0]), x[1], x[2])}; }});
  all.push_back(
      {.name = "embedding",
       .inputs = {tokens({3, 4}, 5), weight({5, 6}), weight({7, 6})},
       .apply = [](const Operands& x) { return std::vector{embedding(var(x[0]), x[1], x[2])}; }});
  all.push_back(
      {.name = "embedding_without_positions",
       .inputs = {{.shape = {3, 4}, .below = 5, .large = {2, 300}},
                  {.shape = {5, 6}, .parameter = true, .large = {400, 300}}},
       .apply = [](const Operands& x) { return std::vector{embedding(var(x[0]), x[1])}; }});
}

}  // namespace

const std::vector<OpSample>& op_samples() {
  static const std::vector<OpSample> samples = [] {
    std::vector<OpSample> all;
    add_elementwise(all);
    add_layers(all);
    add_adapters(all);
    add_attention(all);
    add_losses(all);
    add_attention_samples(all);
    add_llama_samples(all);
    add_map_samples(all);
    add_view_samples(all);
    add_matmul_samples(all);
    add_reductions_samples(all);
    return all;
  }();
  return samples;
}

}  // namespace spool::testing
