#include "tests/autograd/plan_testing.h"

#include <algorithm>

#include "spool/runtime/hash.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/meta/stream.h"

namespace spool::testing {
namespace {

constexpr size_t unlimited = size_t{1} << 46;

// The number of nodes before the first that cannot be recomputed: a loss that forms gradients in
// forward.
NodeId recomputable_nodes(const Tape& survey) {
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
  std::vector<uint64_t> words(ceil_div<size_t>(t.nbytes(), 8));
  read_bytes(t, 0, std::as_writable_bytes(std::span(words)).first(t.nbytes()));
  Hash h(before);
  for (const uint64_t word : words) h.add(word);
  return h.state();
}

}  // namespace

Plan random_plan(const Tape& survey, Random& random) {
  Plan plan;
  const NodeId recomputable = recomputable_nodes(survey);
  const auto nodes = static_cast<NodeId>(survey.nodes().size());
  const uint64_t recompute_in = random.next() % 4, offload_in = random.next() % 4;  // of 4
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
  MetaStream stream({.architecture = architecture});
  StepOutcome foretold;
  {
    HostLink link(stream, unlimited);
    Offloader offloader(link);
    step(stream, {.plan = plan, .offloader = &offloader});
    foretold.host_peak = link.memory().peak;
    EXPECT_EQ(link.memory().live, 0u);
  }
  EXPECT_EQ(stream.memory().live, 0u);
  foretold.device_peak = stream.memory().peak;
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

}  // namespace spool::testing
