#include "tests/autograd/plan_testing.h"

#include <algorithm>
#include <cmath>

#include "spool/autograd/chunks/cut.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/meta/stream.h"

namespace spool::testing {
namespace {

constexpr size_t unlimited = size_t{1} << 46;

// The number of nodes before the first that cannot be recomputed: a loss that forms gradients in
// forward.
NodeId recomputable_nodes(const spool::Program& program) {
  const auto at =
      std::ranges::find_if(program.nodes, [](const Node& n) { return !n.op->recomputable(); });
  return static_cast<NodeId>(at - program.nodes.begin());
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

bool cross(const Region& a, const Region& b) {
  return (a.first < b.first && b.first <= a.last && a.last < b.last) ||
         (b.first < a.first && a.first <= b.last && b.last < a.last);
}

bool is_within(const Region& inner, const Region& outer) {
  return outer.first <= inner.first && inner.last <= outer.last;
}

// Adds a random region in chunks if it can be cut and crosses no other; regions in it are removed.
void add_chunked_region(const spool::Program& program, Random& random, std::vector<Region>& all) {
  const auto below = [&](NodeId n) { return static_cast<NodeId>(random.next() % uint64_t(n)); };
  Region r{.first = below(program.nodes.next_id())};
  r.last = std::min(r.first + below(12), program.nodes.next_id() - 1);
  const Cut c = cut(program, r.first, r.last);
  const auto is_mean = [&](NodeId n) { return program.nodes[n].op->needs_loss_scale(); };
  if (!c || std::ranges::any_of(c.nodes, is_mean)) return;
  r.chunks = 2 + static_cast<int>(random.next() % uint64_t(std::min<int64_t>(c.extent - 1, 6)));
  r.leaves = find_leaves(program, r.first, r.last);
  const auto is_in_its_way = [&](const Region& other) {
    return cross(r, other) || (other.chunks > 1 && is_within(r, other));
  };
  if (r.leaves.empty() || std::ranges::any_of(all, is_in_its_way)) return;
  const bool has_same_nodes = random.next() % 2 == 0;
  std::erase_if(all, [&](const Region& other) {
    const bool same = is_within(r, other);
    return is_within(other, r) && !(same && has_same_nodes && other.chunks == 1);
  });
  const auto is_before = [](const Region& a, const Region& b) {
    if (a.first != b.first) return a.first < b.first;
    return a.last != b.last ? a.last > b.last : a.chunks < b.chunks;
  };
  all.insert(std::ranges::upper_bound(all, r, is_before), r);
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

// max |a - b| / max |b|, without a copy: there may be 124M.
float difference(const std::vector<float>& a, const std::vector<float>& b) {
  float max = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const float apart = std::abs(a[i] - b[i]);
    max = apart > max || std::isnan(apart) ? apart : max;
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0 ? max / largest : max;
}

void expect_near(const StepOutcome& found, const StepOutcome& wanted, const std::string& which) {
  ASSERT_EQ(found.values.size(), wanted.values.size()) << which;
  for (size_t i = 0; i < found.values.size(); ++i) {
    ASSERT_EQ(found.values[i].size(), wanted.values[i].size()) << which << ", result " << i;
    ASSERT_LT(difference(found.values[i], wanted.values[i]), 1e-5f) << which << ", result " << i;
  }
}

// Values as f32.
std::vector<float> floats(const Tensor& t) {
  if (t.dtype() == DType::f32) return read<float>(t);
  const std::vector<double> all = values(t);
  return {all.begin(), all.end()};
}

}  // namespace

bool runs_in_chunks(const Plan& plan) {
  return std::ranges::any_of(plan.regions, [](const Region& r) { return r.chunks > 1; });
}

Plan random_plan(const spool::Program& program, Random& random) {
  Plan plan;
  const NodeId recomputable = recomputable_nodes(program);
  const NodeId nodes = program.nodes.next_id();
  const uint64_t recompute_in = random.next() % 4, offload_in = random.next() % 4;  // of 4
  for (ValueId v = 0; v < program.values.next_id(); ++v) {
    const Value& value = program.values[v];
    Placement p = Placement::keep;
    if (random.next() % 4 < recompute_in && value.producer < recomputable) p = Placement::recompute;
    if (random.next() % 4 < offload_in) p = Placement::offload;
    plan.placement.push_back(p);
    const bool as_planned = p == Placement::offload && random.next() % 2 == 0;
    if (as_planned) plan.offloads.push_back(random_offload(v, value, nodes, random));
  }
  if (random.next() % 2 == 0) add_regions(0, recomputable - 1, 0, random, plan.regions);
  for (uint64_t more = random.next() % 4; more > 0; --more) {
    add_chunked_region(program, random, plan.regions);
  }
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
      if (!t) continue;
      outcome.bits = hash(outcome.bits, t);
      if (runs_in_chunks(plan) || plan == Plan{}) outcome.values.push_back(floats(t));
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
    if (runs_in_chunks(plan)) {
      ASSERT_NO_FATAL_FAILURE(expect_near(outcome, kept, sentence("mixture ", i)));
    } else {
      ASSERT_EQ(outcome.bits, kept.bits) << "mixture " << i;
    }
    ASSERT_EQ(outcome.device_peak, foretold.device_peak) << "mixture " << i;
    ASSERT_EQ(outcome.host_peak, foretold.host_peak) << "mixture " << i;
  }
}

}  // namespace spool::testing
