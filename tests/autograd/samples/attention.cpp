#include "spool/autograd/ops.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {

// Without a mask.  The cpu's tiles have 96 tokens.
void add_attention_samples(std::vector<OpSample>& all) {
  const auto sample = [&](const std::string& name, const Shape& shape, Heads heads, int64_t D) {
    const int64_t row = (heads.query + 2 * heads.key) * D;
    const Shape large = heads.query == heads.key ? Shape() : Shape{2, 200, row / D * 64};
    all.push_back({.name = "attention_to_all" + name,
                   .inputs = {{.shape = shape.with(-1, row), .large = large}},
                   .apply = [=](const std::vector<Operand>& x) {
                     return std::vector{attention(*x[0].var, heads, Mask::none)};
                   }});
  };
  sample("", {2, 9, 0}, {.query = 2, .key = 2}, 4);
  sample("_of_one_token", {2, 1, 0}, {.query = 1, .key = 1}, 3);
  sample("_grouped", {2, 7, 0}, {.query = 4, .key = 2}, 5);
  sample("_in_two_tiles", {1, 101, 0}, {.query = 1, .key = 1}, 1);
  all.push_back({.name = "attention_from_first",
                 .inputs = {{.shape = {2, 7, 40}, .large = {2, 200, 8 * 64}},
                            {.shape = {2, 7}, .below = 1, .large = {2, 200}}},
                 .apply = [](const std::vector<Operand>& x) {
                   return std::vector{
                       attention(*x[0].var, {.query = 4, .key = 2}, /*first=*/*x[1].var)};
                 }});
}

}  // namespace spool::testing
