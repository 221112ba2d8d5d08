// The units of parameters that may live on the host, and where they are by hand.

#include "spool/planner/home_units.h"

#include <algorithm>
#include <numeric>

#include "spool/autograd/ops.h"
#include "spool/planner/policy.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/homes/homes_testing.h"

namespace spool::testing {
namespace {

// What a loss records, whose parameters need not be there.
template <class Loss>
spool::Program recorded(const Loss& loss) {
  MetaStream stream{Machine{}};
  Parameters parameters(stream);
  Tape tape(stream, {.backward_follows = true});
  const Var y = loss(tape, parameters);
  tape.backward({Root{y, Tensor(y.spec(), stream)}});
  return tape.take_program();
}

spool::Program program_of(const NetForm& form) {
  MetaStream stream{Machine{}};
  HomesNet net(form, stream, {});
  Tape tape(stream, {.backward_follows = true});
  const Var y = net.run(tape, 0);
  tape.backward(form.with_loss ? std::vector<Root>{{y}}
                               : std::vector<Root>{{y, Tensor(y.spec(), stream)}});
  return tape.take_program();
}

// Their nodes and parameters alone.
std::vector<PlannedUnit> at_home(std::vector<PlannedUnit> units) {
  for (PlannedUnit& unit : units) {
    unit = {.first = unit.first,
            .last = unit.last,
            .parameters = unit.parameters,
            .first_readers = unit.first_readers,
            .forward_fetch = unit.first,
            .backward_fetch = unit.last};
  }
  return units;
}

Var input(Tape& tape, const Shape& shape) { return tape.input(Tensor({shape}, tape.stream())); }

TEST(HomeUnits, AreBlocksAndTheNodesAroundThem) {
  for (const bool with_loss : {false, true}) {
    const NetForm form{.blocks = 3, .with_loss = with_loss};
    const std::vector<PlannedUnit> units = units_of(program_of(form));
    EXPECT_EQ(units.size(), 5u);
    EXPECT_EQ(units, at_home(plan_of_units(form).units));
  }
}

TEST(HomeUnits, HaveNoParameterThatIsReadOnBothSidesOfABlockAndNoneThatIsUnused) {
  const NetForm tied{.blocks = 2, .tied = true, .with_unused = true};
  const std::vector<PlannedUnit> units = units_of(program_of(tied));
  EXPECT_EQ(units.size(), 2u);
  EXPECT_EQ(units, at_home(plan_of_units(tied).units));
}

// A parameter between two blocks is a unit of its own; one that two blocks read is in none.
TEST(HomeUnits, MayLieBetweenBlocks) {
  const spool::Program program = recorded([](Tape& tape, Parameters& parameters) {
    Parameter& first = parameters.add("first", {8, 8});
    Parameter& shared = parameters.add("shared", {8});
    Parameter& between = parameters.add("between", {8, 8});
    Var h = input(tape, {4, 8});
    const auto block = [&](bool has_first) {
      const Tape::Scope scope(tape, {.name = "block"});
      if (has_first) h = gelu(linear(h, first));
      h = gelu(mul(h, shared));
    };
    block(true);
    h = gelu(linear(h, between));
    block(false);
    return h;
  });
  const std::vector<PlannedUnit> units = units_of(program);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].parameters, std::vector<uint32_t>{0});
  EXPECT_EQ(std::pair(units[0].first, units[0].last), std::pair(0, 3));
  EXPECT_EQ(units[1].parameters, std::vector<uint32_t>{2});
  EXPECT_EQ(std::pair(units[1].first, units[1].last), std::pair(4, 5));
}

TEST(HomeUnits, OfAModelWithoutBlocksAreThoseThatOneNodeReads) {
  const spool::Program program = recorded([](Tape& tape, Parameters& parameters) {
    Parameter& a = parameters.add("a", {8, 8});
    Parameter& gain = parameters.add("gain", {8});
    Parameter& bias = parameters.add("bias", {8});
    Parameter& b = parameters.add("b", {8, 8});
    Var h = layer_norm(linear(input(tape, {4, 8}), a), gain, bias);
    return mul(linear(h, b), gain);
  });
  const std::vector<PlannedUnit> units = units_of(program);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].parameters, std::vector<uint32_t>{0});
  EXPECT_EQ(units[1].parameters, std::vector<uint32_t>{2}) << "not the gain, which two nodes read";
  EXPECT_EQ(units[2].parameters, std::vector<uint32_t>{3});
  for (const PlannedUnit& unit : units) EXPECT_EQ(unit.first, unit.last);
}

spool::Program adapted_program() {
  return recorded([](Tape& tape, Parameters& parameters) {
    parameters.train_added(false);
    Parameter& weight = parameters.add("weight", {8, 8});
    parameters.train_added(true);
    Parameter& a = parameters.add("a", {2, 8});
    Parameter& b = parameters.add("b", {8, 2});
    const Tape::Scope scope(tape, {.name = "block"});
    return linear(input(tape, {4, 8}), weight, LowRank{.a = a, .b = b, .columns = {{0, 8}}});
  });
}

TEST(HomeUnits, LeaveAdaptersOnTheDevice) {
  const std::vector<PlannedUnit> units = units_of(adapted_program());
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].parameters, std::vector<uint32_t>{0});
  EXPECT_EQ(units[0].first_readers, std::vector<NodeId>{0});
  Plan plan;
  place_homes(plan, adapted_program(), {});
  EXPECT_TRUE(plan.units[0].parameters_away);
  EXPECT_FALSE(plan.units[0].gradients_away) << "nothing of the unit is trained";
}

size_t bytes_of(const PlannedUnit& unit) {
  constexpr size_t C = HomesNet::channels;
  return unit.parameters.size() * (unit.parameters.size() > 1 ? 2 : 1) * C * C * sizeof(float);
}

std::vector<size_t> staying_of(const Plan& plan) {
  std::vector<size_t> staying;
  for (size_t i = 0; i < plan.units.size(); ++i) {
    EXPECT_EQ(plan.units[i].parameters_away, plan.units[i].gradients_away);
    if (!plan.units[i].parameters_away) staying.push_back(i);
  }
  return staying;
}

TEST(PlacedHomes, AreAllAwayOrAllOnTheDevice) {
  const spool::Program program = program_of({.blocks = 4});
  Plan plan;
  place_homes(plan, program, {.bytes_on_device = 0});
  EXPECT_EQ(staying_of(plan), std::vector<size_t>());
  EXPECT_EQ(plan.units.size(), 6u);
  EXPECT_TRUE(has_homes(plan));
  place_homes(plan, program, {.bytes_on_device = size_t{1} << 40});
  EXPECT_EQ(staying_of(plan), (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(has_homes(plan));
  EXPECT_FALSE(uses_homes(plan));
}

// First what is smaller than most; then blocks, each as far from the next as can be.
TEST(PlacedHomes, ThatStayAreEvenlySpaced) {
  const spool::Program program = program_of({.blocks = 9});
  Plan plan;
  place_homes(plan, program, {});
  const size_t end = bytes_of(plan.units.front()), block = bytes_of(plan.units[1]);
  ASSERT_LT(2 * end, block);
  const auto staying_with = [&](size_t bytes) {
    place_homes(plan, program, {.bytes_on_device = bytes});
    return staying_of(plan);
  };
  EXPECT_EQ(staying_with(end - 1), std::vector<size_t>());
  EXPECT_EQ(staying_with(2 * end - 1), (std::vector<size_t>{0}));
  EXPECT_EQ(staying_with(2 * end), (std::vector<size_t>{0, 10}));
  for (size_t n = 1; n <= 9; ++n) {
    const std::vector<size_t> all = staying_with(2 * end + n * block);
    ASSERT_EQ(all.size(), n + 2) << n;
    EXPECT_EQ(all[1], 1u) << "the first block, before which nothing runs";
    size_t shortest = 9, longest = 1;
    for (size_t i = 1; i + 1 < n + 1; ++i) {
      shortest = std::min(shortest, all[i + 1] - all[i]);
      longest = std::max(longest, all[i + 1] - all[i]);
    }
    EXPECT_LE(longest, shortest + 1) << n;
    EXPECT_EQ(staying_with(2 * end + n * block + block - 1), all);
  }
}

TEST(PlacedHomes, TakeNoMoreOfTheDeviceThanGiven) {
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    const spool::Program program = program_of({.blocks = 1 + static_cast<int>(random.next() % 7)});
    Plan plan;
    const size_t bytes = random.next() % 40000;
    place_homes(plan, program, {.bytes_on_device = bytes});
    size_t staying = 0, least_away = SIZE_MAX;
    for (const PlannedUnit& unit : plan.units) {
      if (unit.parameters_away) {
        least_away = std::min(least_away, bytes_of(unit));
      } else {
        staying += bytes_of(unit);
      }
    }
    EXPECT_LE(staying, bytes);
    EXPECT_TRUE(least_away == SIZE_MAX || staying + least_away > bytes);
  }
}

TEST(PlacedHomes, AreFetchedSoManyUnitsThatAreAwayBefore) {
  const NetForm form{.blocks = 4};
  const spool::Program program = program_of(form);
  for (int ahead = 0; ahead <= 7; ++ahead) {
    Plan plan;
    place_homes(plan, program, {.ahead = ahead});
    const std::vector<PlannedUnit> wanted = plan_of_units(form, ahead).units;
    ASSERT_EQ(plan.units.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(plan.units[i].forward_fetch, wanted[i].forward_fetch) << i << ", " << ahead;
      EXPECT_EQ(plan.units[i].backward_fetch, wanted[i].backward_fetch) << i << ", " << ahead;
    }
    EXPECT_NO_THROW(check_plan([&] {
      plan.optimizer_state = OptimizerState::streamed;
      return plan;
    }()));
  }
}

// Units that stay are not counted, but in the backward of what is updated there.
TEST(PlacedHomes, CountUnitsThatMove) {
  const spool::Program program = program_of({.blocks = 4});
  Plan plan;
  place_homes(plan, program, {});
  const size_t end = bytes_of(plan.units.front()), block = bytes_of(plan.units[1]);
  HomesByHand by_hand{.bytes_on_device = 2 * end + 2 * block};
  place_homes(plan, program, by_hand);
  EXPECT_EQ(staying_of(plan), (std::vector<size_t>{0, 1, 3, 5}));
  EXPECT_EQ(plan.units[4].forward_fetch, plan.units[2].first);
  EXPECT_EQ(plan.units[2].backward_fetch, plan.units[4].last);
  by_hand.update = UpdateTime::backward;
  place_homes(plan, program, by_hand);
  EXPECT_EQ(plan.units[4].forward_fetch, plan.units[2].first);
  EXPECT_EQ(plan.units[3].backward_fetch, plan.units[4].last);
}

TEST(PlacedHomes, AreReadInBackwardIfItReadsThem) {
  const NetForm form{.blocks = 2};
  const spool::Program program = program_of(form);
  Plan plan;
  place_homes(plan, program, {});
  const auto in_backward = [&] {
    std::vector<bool> all;
    for (const PlannedUnit& unit : plan.units) all.push_back(unit.in_backward);
    return all;
  };
  EXPECT_EQ(in_backward(), (std::vector{false, true, true, true}));  // the input has no gradient
  Plan recomputed{.regions = {{.first = 0, .last = 0}}};
  plan = recomputed;
  place_homes(plan, program, {});
  EXPECT_EQ(in_backward(), std::vector(4, true));
  plan = {.placement = {}};
  place_homes(plan, program, {.update = UpdateTime::backward});
  EXPECT_EQ(in_backward(), std::vector(4, true)) << "for the update";
  const spool::Program frozen = program_of({.blocks = 2, .frozen_block = 0});
  plan = {};
  place_homes(plan, frozen, {});
  EXPECT_EQ(in_backward(), (std::vector{false, true, true, true}));
  EXPECT_TRUE(plan.units[1].parameters_away);
  EXPECT_FALSE(plan.units[1].gradients_away);
}

TEST(PlacedHomes, TheLastUnitStaysIntoBackwardAndHasItsSumsInForward) {
  const NetForm form{.blocks = 3, .with_loss = true};
  const spool::Program program = program_of(form);
  Plan plan;
  place_homes(plan, program, {});
  EXPECT_EQ(std::ranges::count(plan.units, true, &PlannedUnit::stays), 1);
  EXPECT_TRUE(plan.units.back().stays);
  EXPECT_EQ(std::ranges::count(plan.units, true, &PlannedUnit::all_in_forward), 1);
  EXPECT_TRUE(plan.units.back().all_in_forward);
  const size_t end = bytes_of(plan.units.front());
  place_homes(plan, program, {.bytes_on_device = 2 * end});
  EXPECT_FALSE(plan.units.back().parameters_away);
  EXPECT_TRUE(plan.units[3].stays) << "the last that is away";
  EXPECT_EQ(std::ranges::count(plan.units, true, &PlannedUnit::stays), 1);
}

TEST(PlacedHomes, OfAModelWithoutUnitsAreNone) {
  const spool::Program program = recorded([](Tape& tape, Parameters& parameters) {
    Parameter& gain = parameters.add("gain", {8});
    return mul(mul(input(tape, {4, 8}), gain), gain);
  });
  Plan plan;
  place_homes(plan, program, {.update = UpdateTime::backward});
  EXPECT_TRUE(plan.units.empty());
  EXPECT_EQ(plan.update, UpdateTime::end);
  EXPECT_NO_THROW(check_plan(plan));
}

TEST(PlacedHomes, FollowAPolicy) {
  const NetForm form{.blocks = 3};
  const auto plan_with = [&](const Policy& policy, const Machine& machine) {
    return plan_from_policy(
        policy, machine, [&](const Plan&) { return RehearsedTape{.program = program_of(form)}; });
  };
  EXPECT_TRUE(plan_with({}, {}).units.empty());
  const Policy host{.optimizer_state = OptimizerState::streamed, .parameters_on_device = 0};
  const Plan on_gpu = plan_with(host, {.architecture = CudaArchitecture{}});
  EXPECT_EQ(staying_of(on_gpu), std::vector<size_t>());
  EXPECT_EQ(on_gpu.units[2].forward_fetch, on_gpu.units[1].first);
  EXPECT_EQ(on_gpu.units_leaving, HomesByHand{}.units_leaving);
  // A processor that computes copies, too: nothing is hidden by fetching ahead.
  const Plan on_cpu = plan_with(host, {.architecture = CpuArchitecture{}});
  EXPECT_EQ(on_cpu.units[2].forward_fetch, on_cpu.units[2].first);
  EXPECT_LT(on_cpu.units_leaving, on_gpu.units_leaving);
  const Plan updated = plan_with({.update = UpdateTime::backward}, {});
  EXPECT_EQ(staying_of(updated).size(), 5u);
  EXPECT_EQ(updated.update, UpdateTime::backward);
  EXPECT_TRUE(uses_homes(updated));
  EXPECT_FALSE(has_homes(updated));
}

}  // namespace
}  // namespace spool::testing
