#include "tests/autograd/plan_testing.h"

#include <algorithm>
#include <bit>

#include "spool/runtime/meta/stream.h"

namespace spool::testing {
namespace {

constexpr size_t unlimited = size_t{1} << 46;

// The last node, should it be a loss that forms gradients in forward, cannot run again.
NodeId replayable_nodes(const Tape& survey) {
  const auto at =
      std::ranges::find_if(survey.nodes(), [](const Node& n) { return !n.op->recomputable(); });
  return static_cast<NodeId>(at - survey.nodes().begin());
}

void add_regions(NodeId first, NodeId last, int depth, Random& random, std::vector<Region>& all) {
  while (first <= last) {
    const auto begin = first + static_cast<NodeId>(random.next() % 4);
    const auto end = std::min(begin + static_cast<NodeId>(random.next() % 9), last);
    if (begin > last) return;
    if (random.next() % 2 == 0) {
      all.push_back({begin, end});
      if (depth < 3) add_regions(begin, end, depth + 1, random, all);
    }
    first = end + 1;
  }
}

Offload random_offload(ValueId v, const Value& value, NodeId nodes, Random& random) {
  Offload how{.value = v};
  const int64_t extent = value.spec.shape.rank() ? value.spec.shape[0] : 1;
  if (random.next() % 3 == 0) how.rows = static_cast<int64_t>(random.next() % uint64_t(extent + 1));
  const auto some_node = [&] {
    return static_cast<NodeId>(random.next() % static_cast<uint64_t>(nodes + 2));
  };
  if (random.next() % 2 == 0) how.release = some_node();
  if (random.next() % 2 == 0) how.fetch = some_node();
  return how;
}

uint64_t hash(uint64_t before, const Tensor& t) {
  std::vector<uint64_t> words((t.nbytes() + 7) / 8);
  read_bytes(t, 0, std::as_writable_bytes(std::span(words)).first(t.nbytes()));
  uint64_t h = before ^ 0xCBF29CE484222325u;
  for (const uint64_t word : words) h = std::rotl(h ^ word, 29) * 0x9E3779B97F4A7C15u;
  return h;
}

}  // namespace

Plan random_plan(const Tape& survey, Random& random) {
  Plan plan;
  const NodeId recomputable = replayable_nodes(survey);
  const auto nodes = static_cast<NodeId>(survey.nodes().size());
  const uint64_t recompute_in = random.next() % 4, offload_in = random.next() % 4;  // quarters
  for (size_t i = 0; i < survey.values().size(); ++i) {
    const Value& value = survey.values()[i];
    Placement p = Placement::keep;
    if (random.next() % 4 < recompute_in && value.producer < recomputable) p = Placement::recompute;
    if (random.next() % 4 < offload_in) p = Placement::offload;
    plan.placement.push_back(p);
    const bool as_planned = p == Placement::offload && random.next() % 2 == 0;
    const auto v = static_cast<ValueId>(i);
    if (as_planned) plan.offloads.push_back(random_offload(v, value, nodes, random));
  }
  if (random.next() % 2 == 0) add_regions(0, recomputable - 1, 0, random, plan.regions);
  return plan;
}

StepOutcome foretell(const PlannedStep& step, const Plan& plan, const Architecture& architecture) {
  StepOutcome foretold;
  const Machine machine{.architecture = architecture};
  const Report report = rehearse(machine, [&](MetaStream& stream) {
    HostLink link(stream, unlimited);
    Offloader offloader(link);
    step(stream, {.plan = plan, .offloader = &offloader});
    foretold.host_peak = link.memory().peak;
    EXPECT_EQ(link.memory().live, 0u);
  });
  foretold.device_peak = report.memory.peak;
  return foretold;
}

StepOutcome perform(const PlannedStep& step, const Plan& plan, const StepOutcome& foretold,
                    Device device) {
  const auto stream = open_stream(device, foretold.device_peak, 2);
  StepOutcome outcome;
  {
    HostLink link(*stream, foretold.host_peak);
    Offloader offloader(link);
    for (const Tensor& t : step(*stream, {.plan = plan, .offloader = &offloader})) {
      if (t) outcome.bits = hash(outcome.bits, t);
    }
    outcome.host_peak = link.memory().peak;
    EXPECT_EQ(link.memory().live, 0u);
  }
  outcome.device_peak = stream->memory().peak;
  EXPECT_EQ(stream->memory().live, 0u);
  stream->synchronize();
  return outcome;
}

void expect_as_kept(const PlannedStep& step, int count, Device device,
                    const std::function<Plan(Random&)>& draw) {
  const Architecture architecture = open_stream(device, Arena::granule, 2)->architecture();
  const StepOutcome kept = perform(step, {}, foretell(step, {}, architecture), device);
  for (int i = 0; i < count; ++i) {
    Random random(/*seed=*/1, static_cast<uint64_t>(i));
    const Plan plan = draw(random);
    const StepOutcome foretold = foretell(step, plan, architecture);
    const StepOutcome outcome = perform(step, plan, foretold, device);
    ASSERT_EQ(outcome.bits, kept.bits) << "mixture " << i;
    ASSERT_EQ(outcome.device_peak, foretold.device_peak) << "mixture " << i;
    ASSERT_EQ(outcome.host_peak, foretold.host_peak) << "mixture " << i;
  }
}

// -------------------------------------------------------------------------------------- GPT-2

namespace {

Tensor random_state(Stream& stream) {
  return make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
}

}  // namespace

Var Gpt2Step::loss(Gpt2& model, Tape& tape, Stream& stream) const {
  std::vector<int32_t> ids(static_cast<size_t>(B * T));
  Random random(7);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(config.vocabulary));
  }
  const Tensor tokens = make_tensor<int32_t>({B, T}, ids, stream);
  return model.loss(tape.input(tokens), tape.input(tokens), dropout);
}

std::vector<Tensor> Gpt2Step::operator()(Stream& stream, TapeOptions options) const {
  Gpt2 model(config, DType::f32, stream);
  model.initialise(3);
  options.random = random_state(stream);
  options.backward_follows = true;
  Tape tape(stream, std::move(options));
  const Var y = loss(model, tape, stream);
  std::vector<Tensor> left{y.tensor()};
  tape.backward(y);
  for (Parameter* p : model.parameters()) left.push_back(p->grad);
  return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : left;
}

void expect_as_kept(const Gpt2Step& step, int count, Device device) {
  MetaStream stream(Machine{});
  Gpt2 model(step.config, DType::f32, stream);
  Tape tape(stream, {.backward_follows = true, .random = random_state(stream)});
  step.loss(model, tape, stream);
  expect_as_kept(PlannedStep(step), count, device, [&](Random& r) { return random_plan(tape, r); });
}

}  // namespace spool::testing
