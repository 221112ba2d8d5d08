// runs: numbers
// Every op can be cut along each of its letters, into as many parts as there are.

#include <map>
#include <set>

#include "spool/autograd/sharding/strategies.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/autograd/op_samples.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

Program program_of(const OpSample& sample) {
  CpuStream stream(size_t{64} << 20, 1);
  SampleRun run(sample, stream, {.dtype = sample.types.front()});
  run.forward();
  return run.tape().take_program();
}

// The greatest number of parts of an index: the least extent of those that carry it.
int64_t extent_of(const WholeOp& op, char index) {
  int64_t extent = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Term& term = op.notation.input(i);
    if (!term.carries(index)) continue;
    const int64_t own = term.extent(index, op.inputs[i].spec.shape);
    extent = extent ? std::min(extent, own) : own;
  }
  return extent;
}

TEST(StrategiesOfSamples, CutEachLetterIntoAsManyPartsAsThereAre) {
  std::map<std::string, std::set<char>> cut;
  for (const OpSample& sample : op_samples()) {
    const Program program = program_of(sample);
    const auto values = whole_values(program);
    for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
      const WholeOp op = whole_op(program, n, values);
      for (const char index : op.notation.separable()) {
        const int64_t extent = extent_of(op, index);
        if (extent < 2) continue;
        const MeshAxes mesh = parse_mesh(std::to_string(extent));
        const auto why = strategy(op, {{{index}}}, mesh).why;
        if (why.empty()) cut[program.nodes[n].op->name()].insert(index);
        EXPECT_EQ(why, "") << sample.name << ' ' << program.nodes[n].op->indices();
      }
    }
  }
  const auto letters_of = [&](const char* op) {
    return std::string(cut[op].begin(), cut[op].end());
  };
  EXPECT_EQ(letters_of("linear"), "kno");
  EXPECT_EQ(letters_of("attention"), "bh");
  EXPECT_EQ(letters_of("swiglu"), "in");
}

TEST(StrategiesOfSamples, CutAllButSmallOnesOnTwoOrFourRanks) {
  // One row, one head, or an odd number of all.
  const std::set<std::string> small{"attention_to_all_in_two_tiles",
                                    "concat_rows",
                                    "mean_of_a_row",
                                    "softmax_of_a_row",
                                    "transpose_first",
                                    "mse_of_a_row"};
  std::set<std::string> whole;
  for (const OpSample& sample : op_samples()) {
    const Program program = program_of(sample);
    const WholeOp op = whole_op(program, 0, whole_values(program));
    bool is_cut = false;
    for (const char* mesh : {"2", "4", "2x2"}) {
      for (const auto& s : all_strategies(op, parse_mesh(mesh))) {
        is_cut = is_cut || (s.strategy && s.axes != CutIndices{});
      }
    }
    if (!is_cut) whole.insert(sample.name);
  }
  EXPECT_EQ(whole, small);
}

}  // namespace
}  // namespace spool::testing
