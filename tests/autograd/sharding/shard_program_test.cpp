// runs: threads
// Every op, cut by every strategy over ranks that are threads, computes what it computes whole.

#include "spool/autograd/sharding/shard_program.h"

#include <algorithm>
#include <cmath>

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/autograd/op_samples.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{16} << 20;

TapeOptions tape_options(DType type, Stream& stream) {
  TapeOptions options;
  options.loss_scale = Tensor({Shape{1}, accumulator(type)}, stream);
  launch(Fill{.out = options.loss_scale, .value = 0.125f}, stream);
  options.random = integers({4}, {11, 22, 33, 44}, stream);
  return options;
}

DType type_of(const OpSample& s) { return s.types.front(); }

// A sample as one stream computes it.
struct WholeSample {
  const OpSample& sample;
  CpuStream stream{budget, 1};
  SampleRun run;  // its parameters are those of the program
  Program program = {};
  std::vector<WholeValue> values = {};
  std::vector<ValueId> outputs = {};            // those that have a gradient
  std::map<ValueId, size_t> inputs = {};        // which input of the sample a value is
  std::vector<Numbers> results, upstream = {};  // of the outputs
  std::vector<Numbers> gradients = {};          // by input

  explicit WholeSample(const OpSample& s)
      : sample(s), run(s, stream, {.dtype = type_of(s), .tape = tape_options(type_of(s), stream)}) {
    run.forward();
    results = run.output_values();
    for (const Var& y : run.outputs()) {
      outputs.push_back(y.id());
      const Tensor dy = numbers::normal(y.shape(), y.spec().dtype, stream, 900 + upstream.size());
      upstream.push_back(testing::values(dy));
    }
    run.backward();
    gradients = run.gradients();
    for (ValueId v = 0; v < run.tape().values().next_id(); ++v) {
      if (run.tape().values()[v].producer < 0) inputs[v] = run.position_of(v);
    }
    program = run.tape().take_program();
    values = whole_values(program);
  }
};

// What a rank has.
struct PartResults {
  std::vector<Numbers> outputs = {}, gradients = {};
  size_t peak = 0;
};

// What a rank gives the program: each input and parameter whole.
struct Leaves {
  std::vector<Var> inputs = {};
  std::vector<Parameter> parameters = {};
  std::vector<Parameter*> pointers = {};
  std::vector<size_t> input_of_parameter = {};  // of the sample

  Leaves(const WholeSample& whole, const ShardProgram& part, const SampleRun& like, Tape& tape)
      : parameters(part.parameters.size()), input_of_parameter(part.parameters.size()) {
    for (const ValueId v : part.inputs) {
      inputs.push_back(
          tape.input(like.inputs()[whole.inputs.at(v)], whole.program.values[v].needs_grad));
    }
    for (const ShardValue& v : part.values) {
      if (v.parameter < 0) continue;
      const auto i = static_cast<size_t>(v.parameter);
      input_of_parameter[i] = whole.inputs.at(v.whole);
      parameters[i].data = like.inputs()[input_of_parameter[i]];
    }
    for (Parameter& p : parameters) pointers.push_back(&p);
  }

  std::vector<Numbers> gradients(const WholeSample& whole, const ShardProgram& part, Tape& tape) {
    std::vector<Numbers> all(whole.gradients.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor grad = tape.grad(inputs[i]);
      if (grad) all[whole.inputs.at(part.inputs[i])] = values(grad);
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].grad) all[input_of_parameter[i]] = values(parameters[i].grad);
    }
    return all;
  }
};

// The rank's part of the gradient of an output.
Root root_of(const Var& y, const Numbers& upstream, const WholeValue& value, const Sharding& made,
             const MeshAxes& mesh, const Coordinates& rank) {
  Stream& stream = y.tape().stream();
  const Tensor all({y.shape(), DType::f64}, stream), seed(y.spec(), stream);
  write<double>(all, part_of(upstream, value, gradient_of(made, mesh), mesh, rank));
  launch(Cast{.out = seed, .in = all}, stream);
  return {y, seed};
}

PartResults run_part(const WholeSample& whole, const Strategy& strategy, const MeshAxes& mesh,
                     const Coordinates& rank, Stream& stream) {
  const bool has_numbers = stream.device().type != DeviceType::meta;
  const MeshRanks ranks(mesh, stream);
  PartResults found;
  {
    const SampleRun like(whole.sample, stream, {.dtype = type_of(whole.sample)});
    Assignment how{.nodes = {strategy}};
    for (const auto& [v, input] : whole.inputs) how.given[v] = {};
    const std::vector<Link> links(mesh.size());
    const ShardProgram part = shard(whole.program, how, ranks, link_price(mesh, links));
    Tape tape(stream, tape_options(type_of(whole.sample), stream));
    Leaves leaves(whole, part, like, tape);
    std::vector<int> wanted;
    for (const ValueId v : whole.outputs) wanted.push_back(part.made.at(v));
    const std::vector<Var> made = apply(part, tape, leaves.pointers, leaves.inputs, wanted);
    std::vector<Root> roots;
    for (size_t i = 0; i < made.size(); ++i) {
      roots.push_back(root_of(made[i], whole.upstream[i],
                              whole.values[static_cast<size_t>(whole.outputs[i])],
                              part.values[static_cast<size_t>(wanted[i])].sharding, mesh, rank));
      if (has_numbers) found.outputs.push_back(values(made[i].tensor()));
    }
    tape.backward(roots);
    if (has_numbers) found.gradients = leaves.gradients(whole, part, tape);
  }
  stream.synchronize();
  found.peak = stream.memory().peak;
  return found;
}

void expect_near(const Numbers& found, const Numbers& wanted, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  double largest = 1e-30, apart = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    apart = std::max(apart, std::abs(found[i] - wanted[i]));
  }
  EXPECT_LE(apart, tolerance * largest) << what;
}

double tolerance_of(const WholeSample& whole) {
  return type_of(whole.sample) == DType::f64 ? 1e-12 : 2e-5;
}

// Expects of all ranks' parts what the whole has, and copies that are equal bit for bit.
void expect_whole(const WholeSample& whole, const Strategy& strategy, const MeshAxes& mesh,
                  const std::vector<PartResults>& parts) {
  for (size_t i = 0; i < whole.outputs.size(); ++i) {
    const auto v = static_cast<size_t>(whole.outputs[i]);
    const auto& made = whole.program.nodes[0].outputs;
    const auto slot = static_cast<size_t>(std::ranges::find(made, whole.outputs[i]) - made.begin());
    std::vector<Numbers> of_ranks;
    for (const PartResults& p : parts) of_ranks.push_back(p.outputs[i]);
    expect_near(whole_of(of_ranks, whole.values[v], strategy.outputs[slot], mesh), whole.results[i],
                tolerance_of(whole), "output " + std::to_string(i));
  }
  for (const PartResults& p : parts) {
    for (size_t i = 0; i < whole.gradients.size(); ++i) {
      EXPECT_EQ(p.gradients[i], parts[0].gradients[i]) << "gradient " << i;
      expect_near(p.gradients[i], whole.gradients[i], tolerance_of(whole),
                  "gradient " + std::to_string(i));
    }
  }
}

class StrategiesOnRanks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mesh, StrategiesOnRanks, ::testing::Values("1", "2", "4", "2x2"),
                         [](const auto& mesh) { return "on_" + std::string(mesh.param); });

TEST_P(StrategiesOnRanks, ComputeWhatTheWholeOpDoes) {
  const MeshAxes mesh = parse_mesh(GetParam());
  const auto coordinates = all_ranks(mesh);
  int tried = 0;
  const size_t step = finds_races() ? 7 : 1;
  for (size_t i = 0; i < op_samples().size(); i += step) {
    const OpSample& sample = op_samples()[i];
    const WholeSample whole(sample);
    if (whole.program.nodes.next_id() != 1) continue;
    const WholeOp op = whole_op(whole.program, 0, whole.values);
    for (const StrategyOrReason& s : all_strategies(op, mesh)) {
      if (!s.strategy) continue;
      SCOPED_TRACE(sentence(sample.name, ' ', whole.program.nodes[0].op->indices(), " on ",
                            mesh.text(), ": ", in_words(*s.strategy, op, mesh)));
      std::vector<PartResults> parts(coordinates.size());
      run_ranks(mesh.ranks(), [&](const std::shared_ptr<Communicator>& own) {
        const auto rank = static_cast<size_t>(own->rank());
        CpuStream stream(budget, 1);
        stream.join(own);
        parts[rank] = run_part(whole, *s.strategy, mesh, coordinates[rank], stream);
      });
      for (size_t r = 0; r < parts.size(); ++r) {
        MetaStream meta(Machine{.architecture = this_processor(1),
                                .mesh = {.ranks = mesh.ranks(), .rank = static_cast<int>(r)}});
        EXPECT_EQ(run_part(whole, *s.strategy, mesh, coordinates[r], meta).peak, parts[r].peak);
      }
      expect_whole(whole, *s.strategy, mesh, parts);
      ++tried;
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(tried, finds_races() ? 5 : mesh.ranks() == 1 ? 60 : 100);
}

}  // namespace
}  // namespace spool::testing
