// Samples of sums, means, softmax, losses, and dimensions in another order.

#include "spool/autograd/ops.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {
namespace {

using Operands = std::vector<Operand>;

template <class Apply>
OpSample of_one(const std::string& name, const Shape& shape, const Shape& large, Apply apply,
                double mean = 0) {
  return {.name = name,
          .inputs = {{.shape = shape, .mean = mean, .large = large}},
          .apply = [=](const Operands& x) { return std::vector{apply(x[0])}; }};
}

// The inputs have a mean, so that a sum is not all cancellation.
void add_sums(std::vector<OpSample>& all) {
  const auto add = [&](const std::string& name, const Shape& shape, auto apply) {
    all.push_back(of_one(name, shape, {600, 300}, apply, /*mean=*/1));
  };
  add("sum", {3, 2, 7}, [](const Operand& x) { return sum(x); });
  add("mean", {3, 2, 7}, [](const Operand& x) { return mean(x); });
  add("sum_last", {3, 2, 7}, [](const Operand& x) { return sum(x, Over::last); });
  add("mean_last", {3, 2, 7}, [](const Operand& x) { return mean(x, Over::last); });
  add("mean_of_a_row", {7}, [](const Operand& x) { return mean(x, Over::last); });
}

void add_softmax(std::vector<OpSample>& all) {
  const auto apply = [](const Operand& x) { return softmax(x); };
  all.push_back(of_one("softmax", {3, 2, 7}, {600, 300}, apply));
  all.push_back(of_one("softmax_of_a_row", {70}, {}, apply));
}

void add_permutations(std::vector<OpSample>& all) {
  all.push_back(of_one("transpose", {3, 5, 4}, {4, 300, 200},
                       [](const Operand& x) { return transpose(x, -1, 1); }));
  all.push_back(of_one("transpose_first", {3, 5}, {600, 300},
                       [](const Operand& x) { return transpose(x, 0, 1); }));
  all.push_back(of_one("permute_heads", {2, 5, 3, 4}, {4, 90, 80, 8}, [](const Operand& x) {
    return permute(x, {0, 2, 1, 3});
  }));
  all.push_back(of_one("permute_in_a_circle", {2, 5, 3, 4}, {}, [](const Operand& x) {
    return permute(x, {0, 3, 1, 2});
  }));
}

OpSample cross_entropy_sample(const std::string& name, const LossOptions& options,
                              int64_t columns = 11) {
  return {.name = "cross_entropy_" + name,
          .inputs = {{.shape = {2, 5, columns}, .large = {600, 300}},
                     {.shape = {2, 5}, .below = 11, .ignored_every = 4, .large = {600}}},
          .apply = [=](const Operands& x) {
            return std::vector{cross_entropy(*x[0].var, *x[1].var, options)};
          }};
}

void add_cross_entropies(std::vector<OpSample>& all) {
  all.push_back(cross_entropy_sample("mean", {}));
  all.push_back(cross_entropy_sample("sum", {.reduction = Reduction::sum}));
  all.push_back(cross_entropy_sample("none", {.reduction = Reduction::none}));
  all.push_back(cross_entropy_sample("padded", {.options = {.vocabulary = 11}}, 16));
  all.push_back(cross_entropy_sample(
      "of_all_options", {.options = {.label_smoothing = 0.1f, .z_loss = 0.01f, .soft_cap = 3}}));
}

void add_squared_errors(std::vector<OpSample>& all) {
  const auto sample = [&](const std::string& name, const Shape& shape, Reduction reduction) {
    all.push_back(
        {.name = "mse_" + name,
         .inputs = {{.shape = shape, .large = {600, 300}}, {.shape = shape, .large = {600, 300}}},
         .apply = [=](const Operands& x) {
           return std::vector{mse(*x[0].var, *x[1].var, reduction)};
         }});
  };
  sample("mean", {3, 2, 7}, Reduction::mean);
  sample("sum", {3, 2, 7}, Reduction::sum);
  sample("none", {3, 2, 7}, Reduction::none);
  sample("of_a_row", {7}, Reduction::mean);
}

}  // namespace

void add_reductions_samples(std::vector<OpSample>& all) {
  add_sums(all);
  add_softmax(all);
  add_permutations(all);
  add_cross_entropies(all);
  add_squared_errors(all);
}

}  // namespace spool::testing
