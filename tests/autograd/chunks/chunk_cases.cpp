#include <algorithm>

#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

using Vars = std::vector<Var>;

std::vector<ChunkCase> cases_of_layers() {
  return {
      {"mlp", {{0, 5}}, [](Net& n, const Var& x, const Var&) { return Vars{n.mlp(x)}; }},
      {"mlp_between_others",
       {{1, 6}},
       [](Net& n, const Var& x, const Var&) { return Vars{gelu(n.mlp(gelu(x)))}; }},
      {"part_of_an_mlp", {{1, 3}}, [](Net& n, const Var& x, const Var&) { return Vars{n.mlp(x)}; }},
      {"two_regions",
       {{0, 5}, {7, 12}},
       [](Net& n, const Var& x, const Var&) { return Vars{n.mlp(gelu(n.mlp(x)))}; }},
      {"attention",
       {{0, 4}},
       [](Net& n, const Var& x, const Var&) { return Vars{n.mixer(x)}; },
       /*extent=*/2},
      {"block",
       {{0, 10}},
       [](Net& n, const Var& x, const Var&) { return Vars{n.mlp(n.mixer(x))}; },
       /*extent=*/2},
      {"embedding",
       {{0, 6}},
       [](Net& n, const Var& x, const Var&) {
         return Vars{n.mlp(embedding(x.tape().input(n.tokens), n.tokens_weight))};
       },
       /*extent=*/2},
  };
}

std::vector<ChunkCase> cases_of_losses() {
  const auto loss_of_mlp = [](Reduction reduction) {
    return
        [reduction](Net& n, const Var& x, const Var&) { return Vars{n.loss(n.mlp(x), reduction)}; };
  };
  return {
      {"sum_of_losses", {{0, 6}}, loss_of_mlp(Reduction::sum)},
      {"mean_of_losses", {{0, 6}}, loss_of_mlp(Reduction::mean)},
      {"losses_of_rows", {{0, 6}}, loss_of_mlp(Reduction::none)},
  };
}

std::vector<ChunkCase> cases_of_weights() {
  return {
      {"tied_weights",
       {{0, 2}},
       [](Net& n, const Var& x, const Var&) {
         return Vars{linear(gelu(linear(x, n.square)), n.square)};
       }},
      {"weights_used_again_outside",
       {{0, 2}},
       [](Net& n, const Var& x, const Var&) {
         return Vars{linear(linear(gelu(linear(x, n.square)), n.square), n.square)};
       }},
      {"a_node_without_the_index",
       {{0, 3}},
       [](Net&, const Var& x, const Var& w) {
         const Var twice = scale(w, 2);
         return Vars{linear(gelu(linear(x, twice)), twice)};
       }},
      {"a_leaf_without_the_index",
       {{0, 3}},
       [](Net&, const Var& x, const Var& w) {
         const Var twice = scale(w, 2);
         const Var y = linear(gelu(linear(x, twice)), twice);
         return Vars{linear(y, twice)};
       }},
  };
}

std::vector<ChunkCase> cases_of_leaves() {
  return {
      {"several_leaves",
       {{0, 3}},
       [](Net& n, const Var& x, const Var&) {
         const Var a = layer_norm(x, n.norm_weight, n.norm_bias), b = linear(a, n.square);
         const Var c = gelu(b), d = linear(c, n.square);
         return Vars{add(add(a, b), d), gelu(b)};
       }},
      {"a_root_inside",
       {{0, 3}},
       [](Net& n, const Var& x, const Var&) {
         const Var a = linear(x, n.square), b = gelu(a);
         return Vars{b, linear(add(b, x), n.square)};
       }},
      {"an_input_that_others_read",
       {{1, 2}},
       [](Net& n, const Var& x, const Var&) {
         const Var a = linear(x, n.square);
         return Vars{add(add(linear(gelu(a), n.square), a), x)};
       }},
  };
}

std::vector<ChunkCase> make_chunk_cases() {
  std::vector<ChunkCase> all;
  for (const auto& some :
       {cases_of_layers(), cases_of_losses(), cases_of_weights(), cases_of_leaves()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// A run of exactly its foretold peaks.
StepOutcome run_exactly(const ChunkCase& c, const Plan& plan, Device device) {
  const Architecture architecture = open_stream(device, Arena::granule, 2)->architecture();
  const PlannedStep step = step_of(c);
  const StepOutcome foretold = foretell(step, plan, architecture);
  StepOutcome found = perform(step, plan, foretold, device);
  EXPECT_EQ(found.device_peak, foretold.device_peak) << c.name;
  EXPECT_EQ(found.host_peak, foretold.host_peak) << c.name;
  return found;
}

std::vector<int> chunks_to_try(const ChunkCase& c) {
  if (c.extent == 2) return {2};
  return {2, 3, 4, static_cast<int>(c.extent)};
}

// A placement of every value, with offloads of some rows.
Plan placed(Plan plan, Placement p, const Program& program) {
  for (ValueId v = 0; v < program.values.next_id(); ++v) {
    plan.placement.push_back(p);
    const Shape& shape = program.values[v].spec.shape;
    if (p == Placement::offload && v % 2 == 0 && shape.rank() > 0 && shape[0] > 1) {
      plan.offloads.push_back({.value = v, .rows = 1});
    }
  }
  return plan;
}

}  // namespace

const std::vector<ChunkCase>& chunk_cases() {
  static const std::vector<ChunkCase> all = make_chunk_cases();
  return all;
}

const ChunkCase& chunk_case(const std::string& name) {
  const auto at = std::ranges::find(chunk_cases(), name, &ChunkCase::name);
  check(at != chunk_cases().end(), "there is no case ", name);
  return *at;
}

void expect_the_numbers_of_one_chunk(const ChunkCase& c, Device device) {
  const auto stream = open_stream(device, chunk_memory, 2);
  const SampleValues whole = run_case(c, *stream);
  for (const int chunks : chunks_to_try(c)) {
    const SampleValues found = run_case(c, *stream, {.plan = plan_of(c, chunks)});
    EXPECT_LT(largest_difference(found.outputs, whole.outputs), 1e-6) << chunks;
    EXPECT_LT(largest_difference(found.gradients, whole.gradients), 1e-5) << chunks;
    EXPECT_EQ(run_case(c, *stream, {.plan = plan_of(c, chunks)}), found) << "not the same again";
  }
  EXPECT_EQ(stream->memory().live, 0u);
}

void expect_the_foretold_peak(const ChunkCase& c, Device device) {
  for (const int chunks : chunks_to_try(c)) run_exactly(c, plan_of(c, chunks), device);
}

void expect_a_granule_less_is_refused(const ChunkCase& c, Device device) {
  const Plan plan = plan_of(c, 2);
  const Architecture architecture = open_stream(device, Arena::granule, 2)->architecture();
  const size_t peak = foretell(step_of(c), plan, architecture).device_peak;
  const auto stream = open_stream(device, peak - Arena::granule, 2);
  expect_error(ErrorKind::memory, {"the arena needs"},
               [&] { step_of(c)(*stream, {.plan = plan}); });
  EXPECT_EQ(stream->memory().live, 0u);
  stream->synchronize();
}

void expect_placements_keep_the_bits(const ChunkCase& c, Device device) {
  const Program program = program_of(c);
  const Plan plan = plan_of(c, 2);
  const uint64_t bits = run_exactly(c, plan, device).bits;
  for (const Placement p : {Placement::recompute, Placement::offload}) {
    EXPECT_EQ(run_exactly(c, placed(plan, p, program), device).bits, bits) << name(p);
  }
}

void expect_recomputing_around_keeps_the_bits(const ChunkCase& c, Device device) {
  const Program program = program_of(c);
  const Plan plan = plan_of(c, 2);
  const uint64_t bits = run_exactly(c, plan, device).bits;
  Plan all = plan, same = plan;
  all.regions.insert(all.regions.begin(), {0, program.nodes.next_id() - 1});
  EXPECT_EQ(run_exactly(c, all, device).bits, bits) << "all is recomputed";
  same.regions.insert(same.regions.begin(), {plan.regions[0].first, plan.regions[0].last});
  EXPECT_EQ(run_exactly(c, same, device).bits, bits) << "the region is recomputed";
}

void expect_the_outputs_without_recording(const ChunkCase& c, Device device) {
  const auto stream = open_stream(device, chunk_memory, 2);
  for (const int chunks : chunks_to_try(c)) {
    const Plan plan = plan_of(c, chunks);
    const SampleValues recorded = run_case(c, *stream, {.plan = plan});
    const SampleValues found = run_case(c, *stream, {.plan = plan, .recording = false});
    EXPECT_EQ(found.outputs, recorded.outputs) << chunks;
  }
  EXPECT_EQ(stream->memory().live, 0u);
}

}  // namespace spool::testing
