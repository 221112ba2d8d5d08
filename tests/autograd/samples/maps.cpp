// Element-wise ops: those of ops.h, and map() with each number of inputs and kind of broadcast.

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/map.h"
#include "tests/autograd/samples/functors.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {
namespace {

using Operands = std::vector<Operand>;

void add_of_one(std::vector<OpSample>& all) {
  const auto one = [&](const std::string& name, auto apply) {
    all.push_back({.name = name,
                   .inputs = {{.shape = {3, 2, 7}, .large = {600, 300}}},
                   .apply = [=](const Operands& x) { return std::vector{apply(x[0])}; }});
  };
  one("relu", [](const Operand& x) { return relu(x); });
  one("silu", [](const Operand& x) { return silu(x); });
  one("sigmoid", [](const Operand& x) { return sigmoid(x); });
  one("tanh", [](const Operand& x) { return tanh(x); });
  one("exp", [](const Operand& x) { return exp(x); });
  one("square", [](const Operand& x) { return square(x); });
}

// One of each kind of broadcast, by ops that save both operands, one or none.
void add_of_two(std::vector<OpSample>& all) {
  const auto two = [&](const std::string& name, const SampleInput& a, const SampleInput& b,
                       auto apply) {
    all.push_back({.name = name, .inputs = {a, b}, .apply = [=](const Operands& x) {
                     return std::vector{apply(x[0], x[1])};
                   }});
  };
  const auto times = [](const Operand& a, const Operand& b) { return mul(a, b); };
  const auto less = [](const Operand& a, const Operand& b) { return sub(a, b); };
  const auto plus = [](const Operand& a, const Operand& b) { return add(a, b); };
  const SampleInput whole{.shape = {3, 2, 7}, .large = {600, 300}};
  const SampleInput row{.shape = {7}, .parameter = true, .large = {300}};
  const SampleInput column{.shape = {3, 2, 1}, .large = {600, 1}};
  const SampleInput number{.shape = {1}, .parameter = true};
  two("mul", whole, whole, times);
  two("mul_row", whole, row, times);
  two("mul_row_of_eights", {.shape = {5, 16}}, {.shape = {16}}, times);
  two("mul_column", whole, column, times);
  two("mul_column_by_whole", column, whole, times);
  two("mul_number", whole, number, times);
  two("mul_number_by_whole", {.shape = {1}}, {.shape = {4, 3}}, times);
  two("mul_wide_row", {.shape = {2, 700}}, {.shape = {700}}, times);
  two("mul_wide_column", {.shape = {2, 700}}, {.shape = {2, 1}}, times);
  two("sub", whole, whole, less);
  two("sub_row", whole, row, less);
  two("sub_from_row", {.shape = {7}}, {.shape = {6, 7}}, less);
  two("add_row", whole, row, plus);
  two("add_column", whole, column, plus);
  two("add_number", whole, number, plus);
  const auto by = [](const Operand& a, const Operand& b) { return div(a, b); };
  const auto away_from_zero = [](SampleInput input) {
    input.deviation = 0.2;
    input.mean = 2;
    return input;
  };
  two("div", whole, away_from_zero(whole), by);
  two("div_by_row", whole, away_from_zero(row), by);
  two("div_number_by_whole", {.shape = {1}}, away_from_zero({.shape = {4, 3}}), by);
  all.push_back({.name = "log", .inputs = {away_from_zero(whole)}, .apply = [](const Operands& x) {
                   return std::vector{log(x[0])};
                 }});
  all.push_back({.name = "mul_by_itself", .inputs = {whole}, .apply = [](const Operands& x) {
                   return std::vector{mul(x[0], x[0])};
                 }});
}

void add_of_more(std::vector<OpSample>& all) {
  all.push_back(
      {.name = "map_of_three",
       .inputs = {{.shape = {5, 4}}, {.shape = {4}}, {.shape = {5, 1}}},
       .apply = [](const Operands& x) { return std::vector{map(MulAdd(), x[0], x[1], x[2])}; }});
  all.push_back({.name = "map_of_four",
                 .inputs = {{.shape = {4}}, {.shape = {5, 4}}, {.shape = {1}}, {.shape = {5, 4}}},
                 .apply = [](const Operands& x) {
                   return std::vector{map(FourInputs{.scale = 0.5}, x[0], x[1], x[2], x[3])};
                 }});
}

}  // namespace

void add_map_samples(std::vector<OpSample>& all) {
  add_of_one(all);
  add_of_two(all);
  add_of_more(all);
}

}  // namespace spool::testing
