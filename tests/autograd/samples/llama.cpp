#include "spool/autograd/ops.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {
namespace {

using LlamaOperands = std::vector<Operand>;

constexpr Heads few_heads{.query = 4, .key = 2};

// The table's numbers are any: its rows need not be cosines and sines.
void add_rope_samples(std::vector<OpSample>& all) {
  const SampleInput qkv{.shape = {2, 5, 8 * 6}, .large = {150, 3, 8 * 16}};
  const SampleInput table{.shape = {24, 6}, .constant = true, .large = {24, 16}};
  all.push_back({.name = "rope", .inputs = {qkv, table}, .apply = [](const LlamaOperands& x) {
                   return std::vector{rope(*x[0].var, *x[1].var, few_heads, /*first_position=*/3)};
                 }});
  const SampleInput positions{.shape = {2, 5}, .below = 24, .large = {150, 3}};
  all.push_back({.name = "rope_at_positions",
                 .inputs = {qkv, table, positions},
                 .apply = [](const LlamaOperands& x) {
                   return std::vector{rope(*x[0].var, *x[1].var, few_heads, *x[2].var)};
                 }});
}

}  // namespace

void add_llama_samples(std::vector<OpSample>& all) {
  all.push_back(
      {.name = "rms_norm",
       .inputs = {{.shape = {2, 3, 8}, .large = {600, 300}},
                  {.shape = {8}, .parameter = true, .large = {300}}},
       .apply = [](const LlamaOperands& x) { return std::vector{rms_norm(*x[0].var, x[1])}; }});
  all.push_back({.name = "swiglu",
                 .inputs = {{.shape = {3, 2, 14}, .large = {600, 300}}},
                 .apply = [](const LlamaOperands& x) { return std::vector{swiglu(*x[0].var)}; }});
  all.push_back({.name = "head_norm",
                 .inputs = {{.shape = {2, 5, 8 * 6}, .large = {150, 3, 8 * 16}},
                            {.shape = {6}, .parameter = true, .large = {16}},
                            {.shape = {6}, .parameter = true, .large = {16}}},
                 .apply = [](const LlamaOperands& x) {
                   return std::vector{head_norm(*x[0].var, x[1], x[2], few_heads, 1e-5)};
                 }});
  add_rope_samples(all);
}

}  // namespace spool::testing
