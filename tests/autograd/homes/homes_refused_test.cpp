// Plans whose units no tape, or no model, could have.

#include "tests/autograd/homes/homes_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{16} << 20;

PlannedUnit unit(NodeId first, NodeId last, std::vector<uint32_t> parameters) {
  PlannedUnit u{.first = first, .last = last, .parameters = std::move(parameters)};
  u.first_readers.assign(u.parameters.size(), first);
  u.forward_fetch = first;
  u.backward_fetch = last;
  u.parameters_away = true;
  return u;
}

// That a tape refuses the plan, which is streamed unless it says something else.
void expect_refused(std::initializer_list<std::string_view> words, const Plan& plan,
                    int line = __builtin_LINE()) {
  CpuStream stream(size_t{1} << 20, 1);
  expect_error(
      ErrorKind::invalid, words, [&] { const Tape tape(stream, {.plan = plan}); }, __FILE__, line);
}
void expect_refused(std::initializer_list<std::string_view> words, std::vector<PlannedUnit> units,
                    int line = __builtin_LINE()) {
  expect_refused(words, Plan{.units = std::move(units)}, line);
}

TEST(RefusedUnits, HaveNodesOfTheTape) {
  const std::string_view where = "plan: unit of nodes ";
  expect_refused({where, "-1 to 3: its tape has no such nodes"}, {unit(-1, 3, {0})});
  expect_refused({where, "5 to 3: its tape has no such nodes"}, {unit(5, 3, {0})});
  Plan short_tape{.units = {unit(1, 2, {0})}, .fingerprints = {7, 8}};
  expect_refused({where, "1 to 2: its tape has no such nodes"}, short_tape);
  short_tape.fingerprints.push_back(9);
  EXPECT_NO_THROW(check_plan(short_tape));
}

TEST(RefusedUnits, HaveParametersInRisingOrderWithTheirFirstReaders) {
  const std::string_view where = "plan: unit of nodes 3 to 7";
  expect_refused({where, " has no parameters; leave it out"}, {unit(3, 7, {})});
  PlannedUnit without = unit(3, 7, {2, 4});
  without.first_readers.pop_back();
  expect_refused({where, " has 2 parameters and 1 first readers; give one for each"}, {without});
  const std::string_view rising = "list each once, in rising order";
  expect_refused({where, ": parameter 4 comes after parameter 4", rising}, {unit(3, 7, {4, 4})});
  expect_refused({where, ": parameter 2 comes after parameter 4", rising}, {unit(3, 7, {4, 2})});
  for (const NodeId reader : {2, 8}) {
    PlannedUnit outside = unit(3, 7, {2});
    outside.first_readers = {reader};
    expect_refused({where, sentence(": node ", reader, ", the first reader of parameter 2, is not ",
                                    "one of them")},
                   {outside});
  }
}

TEST(RefusedUnits, AreFetchedBeforeTheirNodes) {
  const std::string_view where = "plan: unit of nodes 3 to 7 is fetched before node ";
  for (const NodeId node : {-1, 4}) {
    PlannedUnit u = unit(3, 7, {2});
    u.forward_fetch = node;
    expect_refused({where, sentence(node, " in forward; that must be at most its first")}, {u});
  }
  Plan plan{.units = {unit(3, 7, {2})}, .fingerprints = std::vector<uint64_t>(9, 1)};
  for (const NodeId node : {6, 10}) {
    plan.units[0].backward_fetch = node;
    expect_refused({where, sentence(node, " in backward; that must be at least its last, and at ",
                                    "most the number of nodes")},
                   plan);
  }
  plan.units[0].backward_fetch = 9;
  EXPECT_NO_THROW(check_plan(plan));
}

TEST(RefusedUnits, OverlapOrComeOutOfOrder) {
  const std::string_view remedy = "units must be disjoint, in rising order";
  expect_refused({"plan: unit of nodes 3 to 7 comes after nodes 1 to 3", remedy},
                 {unit(1, 3, {0}), unit(3, 7, {1})});
  expect_refused({"plan: unit of nodes 1 to 2 comes after nodes 3 to 7", remedy},
                 {unit(3, 7, {1}), unit(1, 2, {0})});
  EXPECT_NO_THROW(check_plan({.units = {unit(1, 2, {0}), unit(3, 7, {1})}}));
}

TEST(RefusedUnits, GoWithNumbersThatCanBe) {
  const std::vector<PlannedUnit> units = {unit(1, 2, {0})};
  const auto plan_with = [&](double leaving) {
    return Plan{.units = units, .units_leaving = leaving};
  };
  for (const double leaving : {-0.5, 1e7, std::nan(""), double(INFINITY)}) {
    expect_refused({"units may be on their way; it must be a number from 0 on"},
                   plan_with(leaving));
  }
  Plan plan{.optimizer_state = OptimizerState::streamed, .units = units};
  for (const int64_t elements : {-2048, 100, 2047}) {
    plan.bucket_elements = elements;
    expect_refused({sentence("plan: a bucket of ", elements, " elements; it must be a multiple of ",
                             "2048, or 0 for an eighth of all")},
                   plan);
  }
  plan.bucket_elements = 4096;
  EXPECT_NO_THROW(check_plan(plan));
  plan.optimizer_state = OptimizerState::device;
  expect_refused({"plan: buckets are of state that is streamed, and its place is device"}, plan);
}

TEST(RefusedUnits, GoWithStateThatCanFollowThem) {
  expect_refused({"parameters are to be updated in backward, and it has no units of them"},
                 Plan{.update = UpdateTime::backward});
  Plan plan{.units = {unit(1, 2, {0})}};
  plan.units[0].gradients_away = true;
  for (const OptimizerState state : {OptimizerState::device, OptimizerState::cpu}) {
    plan.optimizer_state = state;
    expect_refused({"plan: gradients are to live on the host, and the place of the optimizer's ",
                    name(state), "; it must be streamed"},
                   plan);
  }
  plan.optimizer_state = OptimizerState::streamed;
  EXPECT_NO_THROW(check_plan(plan));
  plan.units[0].gradients_away = false;
  plan.update = UpdateTime::backward;
  plan.optimizer_state = OptimizerState::cpu;
  expect_refused({"parameters are to be updated in backward, and the host updates them at the end",
                  "on the device or streamed can"},
                 plan);
}

TEST(RefusedUnits, AreOfTheModelsParametersAndEachInOne) {
  CpuStream stream(plenty, 1);
  HostLink link(stream, plenty);
  HomesNet net({}, stream, {});
  const auto expect_no_homes = [&](std::initializer_list<std::string_view> words,
                                   std::vector<PlannedUnit> units) {
    const Plan plan{.optimizer_state = OptimizerState::streamed, .units = std::move(units)};
    expect_error(ErrorKind::invalid, words,
                 [&] { const Homes homes(net.parameters, link, plan, /*micro_batches=*/1); });
    for (const Parameter* p : net.parameters) EXPECT_TRUE(p->data && !p->homes) << p->name;
    EXPECT_EQ(link.memory().live, 0u);
  };
  expect_no_homes({"unit of nodes 3 to 7 has parameter 8, and the model has 8; the plan was made ",
                   "for another model"},
                  {unit(3, 7, {1, 8})});
  expect_no_homes({"unit of nodes 8 to 9 has parameter 1, 0.up, which another unit has, too"},
                  {unit(3, 7, {1}), unit(8, 9, {1})});
}

// That a step under the plan is refused before backward, with nothing left on the device.
void expect_other_parameters(std::initializer_list<std::string_view> words, const NetForm& form,
                             const Plan& plan, int line = __builtin_LINE()) {
  CpuStream stream(plenty, 2);
  HomesRun run(form, plan, stream);
  const size_t live = stream.memory().live;
  expect_error(
      ErrorKind::invalid, words, [&] { run.run_tapes(); }, __FILE__, line);
  for (Parameter* p : run.net.parameters) EXPECT_FALSE(p->grad) << p->name;
  EXPECT_EQ(stream.memory().live, live);
}

TEST(RefusedUnits, AreOfTheParametersThatTheirNodesAloneRead) {
  const std::string_view other = "; the plan was made for other parameters";
  const NetForm form{.blocks = 2};
  Plan shifted = plan_of_units(form);
  shifted.units[1].parameters = {3, 4};  // of the other block
  shifted.units[2].parameters = {1, 2};
  expect_other_parameters({"plan: the unit of nodes 6 to 10 has parameter 1, 0.up, first read by ",
                           "node 7, and node 2 (linear) reads it", other},
                          form, shifted);
  Plan first = plan_of_units(form);
  first.units[1].first_readers = {3, 4};
  expect_other_parameters({"the unit of nodes 1 to 5 has parameter 1, 0.up, first read by node 3, ",
                           "and node 2 (linear) reads it", other},
                          form, first);
}

TEST(RefusedUnits, HaveNoTiedAndNoUnusedParameter) {
  const std::string_view other = "; the plan was made for other parameters";
  const NetForm tied{.blocks = 2, .tied = true, .with_unused = true};
  Plan plan = plan_of_units(tied);
  PlannedUnit embedding = unit(0, 0, {0});
  plan.units.insert(plan.units.begin(), embedding);
  expect_other_parameters({"plan: the unit of nodes 0 to 0 has parameter 0, in, first read by node",
                           " 0, and node 11 (linear) reads it", other},
                          tied, plan);
  plan = plan_of_units(tied);
  plan.units.push_back(unit(11, 11, {5}));
  expect_other_parameters(
      {"plan: the unit of nodes 11 to 11 has parameter 5, which no node reads", other}, tied, plan);
}

}  // namespace
}  // namespace spool::testing
