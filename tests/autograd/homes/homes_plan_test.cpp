// runs: threads
// Steps under plans with units: what is on the device when, and the bits of everything resident.

#include "tests/autograd/homes/homes_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{16} << 20;
constexpr int blocks = 4;
const NetForm form{.blocks = blocks};

// A unit is one block of memory, which has the name of its first parameter.
Names names_of_units(int first, int last) {
  Names all;
  for (int u = std::max(first, 0); u <= std::min(last, blocks + 1); ++u) {
    all.insert(*HomesNet::names_of(form, u).rbegin());
  }
  return all;
}

TEST(PlannedHomes, AreFetchedSoManyUnitsAheadAndFreedAfterTheirNodes) {
  for (int ahead = 0; ahead <= 2; ++ahead) {
    SCOPED_TRACE(sentence(ahead, " ahead"));
    CpuStream stream(plenty, 2);
    HomesRun run(form, plan_of_units(form, ahead), stream);
    int probes = 0;
    run.net.probe = [&](int block, bool in_backward) {
      const int unit = 1 + block;
      ++probes;
      EXPECT_EQ(run.on_device(Purpose::parameter), in_backward ? names_of_units(unit - ahead, unit)
                                                               : names_of_units(unit, unit + ahead))
          << block << in_backward;
    };
    run.run_tapes();
    EXPECT_EQ(probes, 2 * blocks);
    EXPECT_TRUE(run.on_device(Purpose::parameter).empty());
    for (const char* name : {"in", "0.up", "3.up"}) {
      EXPECT_EQ(run.allocated(Purpose::parameter, name), 3) << name;  // one as it was drawn
    }
    // The last is freed as backward begins, unless that fetches it.
    EXPECT_EQ(run.allocated(Purpose::parameter, "out"), 3);
  }
}

TEST(PlannedHomes, StayFromForwardIntoBackward) {
  CpuStream stream(plenty, 2);
  Plan plan = plan_of_units(form);
  for (const size_t u : {size_t{2}, plan.units.size() - 1}) plan.units[u].stays = true;
  HomesRun run(form, plan, stream);
  run.net.probe = [&](int block, bool in_backward) {
    const bool stays = in_backward ? block >= 1 : block >= 0;
    EXPECT_EQ(run.on_device(Purpose::parameter).contains("1.up"), stays) << block << in_backward;
  };
  run.run_tapes();
  EXPECT_EQ(run.allocated(Purpose::parameter, "out"), 2);
  EXPECT_EQ(run.allocated(Purpose::parameter, "1.up"), 2);
  EXPECT_EQ(run.allocated(Purpose::parameter, "0.up"), 3);
  expect_as_resident(form, plan);
}

TEST(PlannedHomes, AreFetchedForBackwardIfItReadsThem) {
  Plan plan = plan_of_units(form);
  plan.units[0].in_backward = false;  // no gradient of the input is asked for
  CpuStream stream(plenty, 2);
  HomesRun run(form, plan, stream);
  run.run_tapes();
  EXPECT_EQ(run.allocated(Purpose::parameter, "in"), 2);
  expect_as_resident(form, plan);
  for (PlannedUnit& unit : plan.units) unit.in_backward = false;  // read nevertheless
  expect_as_resident(form, plan);
}

TEST(PlannedHomes, GradientsLeaveUntilNoMoreAreOnTheirWayThanThePlanSays) {
  const auto on_the_way = [](double units_leaving) {
    CpuStream stream(plenty, 2);
    Plan plan = plan_of_units(form);
    plan.units_leaving = units_leaving;
    HomesRun run(form, plan, stream);
    std::vector<size_t> counts;
    run.net.probe = [&](int block, bool in_backward) {
      if (!in_backward) return;
      size_t count = 0;
      const Names live = run.on_device(Purpose::gradient);
      for (int u = block + 1; u <= blocks + 1; ++u) {
        for (const std::string& name : HomesNet::names_of(form, u)) count += live.count(name);
      }
      counts.push_back(count);
    };
    run.run_tapes();
    const Names after = run.on_device(Purpose::gradient);
    EXPECT_TRUE(after.empty());
    expect_as_resident(form, plan);
    return counts;
  };
  EXPECT_EQ(on_the_way(0), (std::vector<size_t>{0, 0, 0, 0}));
  EXPECT_EQ(on_the_way(0.5), (std::vector<size_t>{1, 1, 1, 1}));
  EXPECT_EQ(on_the_way(1), (std::vector<size_t>{2, 2, 2, 2}));
  EXPECT_EQ(on_the_way(100), (std::vector<size_t>{3, 5, 7, 9}));
}

TEST(PlannedHomes, HaveTheBitsOfEverythingResidentInTheForetoldPeaks) {
  for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
    for (const int micro_batches : {1, 3}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const auto& [ahead, leaving] : {std::pair(0, 0.0), {1, 0.5}, {2, 3.0}}) {
          SCOPED_TRACE(sentence(name(update), ", ", micro_batches, " micro-batches, ", name(dtype),
                                ", ", ahead, " ahead, ", leaving, " leaving"));
          const NetForm of_type{.blocks = 3, .dtype = dtype};
          Plan plan = plan_of_units(of_type, ahead);
          plan.update = update;
          plan.units_leaving = leaving;
          expect_as_resident(of_type, plan, micro_batches);
        }
      }
    }
  }
}

TEST(PlannedHomes, OfAnyMixtureHaveTheBitsOfEverythingResident) {
  for (uint64_t seed = 0; seed < (nightly() ? 200u : 24u); ++seed) {
    SCOPED_TRACE(sentence("mixture ", seed));
    Random random(seed);
    const auto one_of = [&](uint32_t n) { return static_cast<int>(random.next() % n); };
    NetForm mixed{.blocks = 1 + one_of(4), .with_loss = one_of(2) == 0, .tied = one_of(4) == 0};
    if (one_of(3) == 0) mixed.frozen_block = one_of(static_cast<uint32_t>(mixed.blocks));
    Plan plan = plan_of_units(mixed, one_of(3));
    plan.update = one_of(2) ? UpdateTime::end : UpdateTime::backward;
    plan.units_leaving = one_of(4) * 0.5;
    for (PlannedUnit& unit : plan.units) {
      unit.parameters_away = one_of(3) != 0;
      unit.gradients_away = one_of(3) != 0;
      unit.stays = one_of(4) == 0;
      unit.in_backward = one_of(4) != 0;
      unit.all_in_forward = one_of(4) == 0;
    }
    expect_as_resident(mixed, plan, 1 + one_of(3));
  }
}

TEST(PlannedHomes, OfAFrozenUnitHaveNoGradientAndNoCopyOut) {
  const NetForm frozen{.blocks = 3, .frozen_block = 1};
  const Plan plan = plan_of_units(frozen);
  EXPECT_FALSE(plan.units[2].gradients_away);
  for (const int micro_batches : {1, 2}) expect_as_resident(frozen, plan, micro_batches);
  CpuStream stream(plenty, 2);
  HomesRun run(frozen, plan, stream);
  run.run_tapes();
  EXPECT_EQ(run.measured,
            (std::vector<std::string>{"out", "2.down", "2.up", "0.down", "0.up", "in"}));
  EXPECT_FALSE(run.homes->gradient(run.net.parameters.named("1.up")));
  EXPECT_TRUE(run.homes->gradient(run.net.parameters.named("0.up")));
  // A plan that sends all gradients sends none that is not there.
  Plan all = plan;
  all.units[2].gradients_away = true;
  expect_as_resident(frozen, all, 2);
}

TEST(PlannedHomes, ATiedAndAnUnusedParameterStayOnTheDevice) {
  const NetForm tied{.blocks = 3, .tied = true, .with_unused = true};
  const Plan plan = plan_of_units(tied);
  for (const int micro_batches : {1, 3}) expect_as_resident(tied, plan, micro_batches);
  CpuStream stream(plenty, 2);
  HomesRun run(tied, plan, stream);
  EXPECT_EQ(run.on_device(Purpose::parameter), (Names{"in", "unused"}));
}

// A unit for each parameter, as of a model without blocks.
TEST(PlannedHomes, MayBeUnitsOfOneNode) {
  Plan plan = plan_of_units(form);
  std::vector<PlannedUnit> single;
  for (const PlannedUnit& unit : plan.units) {
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const NodeId node = unit.first_readers[i];
      single.push_back({.first = node,
                        .last = node,
                        .parameters = {unit.parameters[i]},
                        .first_readers = {node},
                        .parameters_away = true,
                        .gradients_away = true,
                        .forward_fetch = node,
                        .backward_fetch = node});
    }
  }
  plan.units = single;
  for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
    plan.update = update;
    expect_as_resident(form, plan, 2);
  }
}

// Backward of a block recomputes from within the block before, whose parameters it reads outside of
// their interval.
TEST(PlannedHomes, AreReadAgainWhereOtherNodesRecompute) {
  NetForm recomputed = form;
  recomputed.rest.regions = {{.first = HomesNet::first_of(0) + 1, .last = HomesNet::last_of(1) - 2},
                             {.first = HomesNet::last_of(2) - 1, .last = HomesNet::last_of(3)}};
  for (const int ahead : {0, 1}) {
    for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
      Plan plan = plan_of_units(recomputed, ahead);
      plan.update = update;
      expect_as_resident(recomputed, plan, 2);
    }
  }
  NetForm all = form;
  all.rest.placement = std::vector(64, Placement::recompute);
  expect_as_resident(all, plan_of_units(all), 2);
}

// Each block's linears and the gelu run in chunks of rows; the sum is read outside.
TEST(PlannedHomes, AreThereForRegionsInChunks) {
  NetForm in_chunks = form;
  {
    CpuStream stream(plenty, 1);
    HomesRun run(form, {}, stream);
    Tape tape(stream);
    (void)run.net.run(tape, 0);
    for (int b = 0; b < blocks; ++b) {
      in_chunks.rest.regions.push_back({.first = HomesNet::first_of(b) + 1,
                                        .last = HomesNet::last_of(b),
                                        .chunks = 3,
                                        .leaves = {tape.nodes()[HomesNet::last_of(b)].outputs[0]}});
    }
  }
  for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
    for (const int micro_batches : {1, 2}) {
      Plan plan = plan_of_units(in_chunks);
      plan.update = update;
      expect_as_resident(in_chunks, plan, micro_batches);
    }
  }
}

// The sums of earlier micro-batches are fetched for the loss, which adds to them in forward.
TEST(PlannedHomes, SumsAreThereForGradientsFormedInForward) {
  const NetForm with_loss{.blocks = 2, .with_loss = true};
  for (const bool all_in_forward : {false, true}) {
    for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
      for (const int micro_batches : {1, 2, 4}) {
        SCOPED_TRACE(sentence(all_in_forward, ", ", name(update), ", ", micro_batches));
        Plan plan = plan_of_units(with_loss);
        plan.update = update;
        plan.units.back().all_in_forward = all_in_forward;
        plan.units.back().stays = true;
        expect_as_resident(with_loss, plan, micro_batches);
      }
    }
  }
}

TEST(PlannedHomes, TheFirstMicroBatchFetchesNoSum) {
  CpuStream stream(plenty, 2);
  HomesRun run(form, plan_of_units(form), stream, /*micro_batches=*/3);
  const size_t live = run.link.memory().live;
  run.run_tapes();
  EXPECT_GT(run.link.memory().live, live);
  // Of the first it is formed on the device; each later one fetches it.
  EXPECT_EQ(run.allocated(Purpose::gradient, "1.up"), 3);
  EXPECT_EQ(run.homes->gradient(run.net.parameters.named("1.up")).dtype(), DType::f32);
  EXPECT_EQ(run.measured.size(), run.net.parameters.size());
  run.homes->forget();
  EXPECT_FALSE(run.homes->gradient(run.net.parameters.named("1.up")));
  EXPECT_EQ(run.link.memory().live, live);
}

// Of bf16, a sum of several micro-batches is f32, wherever it lives; one gradient is bf16.
TEST(PlannedHomes, GradientsAreOfTheTypeThatTheyHaveOnTheDevice) {
  const NetForm narrow{.dtype = DType::bf16};
  for (const int micro_batches : {1, 2}) {
    CpuStream stream(plenty, 2);
    HomesRun run(narrow, plan_of_units(narrow), stream, micro_batches);
    run.run_tapes();
    EXPECT_EQ(run.homes->gradient(run.net.parameters.named("0.up")).dtype(),
              micro_batches > 1 ? DType::f32 : DType::bf16);
  }
}

}  // namespace
}  // namespace spool::testing
