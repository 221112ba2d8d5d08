// Ops that show elements in another shape or place.

#include "spool/autograd/ops.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {
namespace {

using Operands = std::vector<Operand>;

void add_views_of_one(std::vector<OpSample>& all) {
  const auto one = [&](const std::string& name, const Shape& shape, auto apply) {
    all.push_back({.name = name, .inputs = {{.shape = shape}}, .apply = [=](const Operands& x) {
                     return std::vector{apply(x[0])};
                   }});
  };
  one("reshape", {4, 3, 2}, [](const Operand& x) { return reshape(x, {4, 6}); });
  one("reshape_to_rows", {4, 6}, [](const Operand& x) { return reshape(x, {2, 2, 6}); });
  one("slice_rows", {5, 4}, [](const Operand& x) { return slice(x, 0, {1, 4}); });
  one("slice_first_rows", {5, 2, 3}, [](const Operand& x) { return slice(x, 0, {0, 2}); });
  one("slice_columns", {3, 2, 5}, [](const Operand& x) { return slice(x, -1, {2, 5}); });
  one("slice_middle", {3, 4, 2, 3}, [](const Operand& x) { return slice(x, 1, {1, 3}); });
}

}  // namespace

void add_view_samples(std::vector<OpSample>& all) {
  add_views_of_one(all);
  const auto several = [&](const std::string& name, std::vector<SampleInput> inputs, int dim) {
    all.push_back({.name = name, .inputs = std::move(inputs), .apply = [=](const Operands& x) {
                     return std::vector{concat(x, dim)};
                   }});
  };
  several("concat_rows", {{.shape = {2, 3}}, {.shape = {4, 3}}, {.shape = {1, 3}}}, 0);
  several("concat_columns", {{.shape = {2, 3, 2}}, {.shape = {2, 3, 5}, .parameter = true}}, -1);
  several("concat_middle", {{.shape = {2, 1, 3}}, {.shape = {2, 4, 3}}}, 1);
  all.push_back(
      {.name = "concat_with_itself", .inputs = {{.shape = {2, 3}}}, .apply = [](const Operands& x) {
         return std::vector{concat({x[0], x[0]}, 0)};
       }});
}

}  // namespace spool::testing
