// Plans as files: a saved plan is loaded unchanged, and every error names the file and the field.

#include "spool/planner/plan_file.h"
#include "spool/planner/plan_json.h"

#include <nlohmann/json.hpp>

#include "spool/planner/report/plan_diff.h"
#include "spool/runtime/files/json.h"
#include "tests/planner/plan_file_testing.h"
#include "tests/planner/plan_testing.h"

namespace spool::testing {
namespace {

int below(Random& random, int n) { return static_cast<int>(random.next() % uint32_t(n)); }

// Random values in runs of equal ones, as in real plans.
template <class T, class Draw>
std::vector<T> in_runs(Random& random, int count, Draw draw) {
  std::vector<T> all;
  while (std::ssize(all) < count) {
    const int run = 1 + below(random, 9);
    all.insert(all.end(), static_cast<size_t>(run), draw());
  }
  all.resize(static_cast<size_t>(count));
  return all;
}

// Random leaves, as if each node had two outputs.
std::vector<ValueId> random_leaves(Random& random, int first, int end) {
  std::vector<ValueId> leaves;
  for (ValueId v = 2 * first; v < 2 * end; ++v) {
    if (below(random, 2)) leaves.push_back(v);
  }
  if (leaves.empty()) leaves.push_back(2 * end - 1);
  return leaves;
}

void add_regions(Random& random, std::vector<Region>& regions, int first, int end) {
  while (first < end) {
    const int length = 1 + below(random, end - first);
    const int kind = below(random, 4);
    if (kind == 1) {
      regions.push_back({.first = first,
                         .last = first + length - 1,
                         .chunks = 2 + below(random, 9),
                         .leaves = random_leaves(random, first, first + length)});
    } else if (kind > 1) {
      regions.push_back({.first = first, .last = first + length - 1});
      if (below(random, 2)) add_regions(random, regions, first, first + length);
    }
    first += length;
  }
}

// Disjoint units whose parameters are anywhere in the model.
void add_units(Random& random, Plan& plan, int nodes) {
  NodeId next = 0;
  while (next < nodes) {
    const NodeId first = next + below(random, 4), last = first + below(random, 6);
    next = last + 1;
    if (last >= nodes) break;
    PlannedUnit unit{.first = first,
                     .last = last,
                     .parameters_away = below(random, 2) == 0,
                     .forward_fetch = below(random, first + 1),
                     .backward_fetch = last + below(random, nodes - last + 1),
                     .stays = below(random, 2) == 0,
                     .in_backward = below(random, 2) == 0,
                     .all_in_forward = below(random, 2) == 0};
    for (int p = below(random, 5), n = 1 + below(random, 4); n > 0; --n) {
      unit.parameters.push_back(static_cast<uint32_t>(p));
      unit.first_readers.push_back(first + below(random, last - first + 1));
      p += 1 + below(random, 9);
    }
    unit.gradients_away = plan.optimizer_state == OptimizerState::streamed && below(random, 2) == 0;
    plan.units.push_back(std::move(unit));
  }
  if (plan.units.empty()) return;
  plan.units_leaving = below(random, 40) / 7.0;
  const bool is_cpu = plan.optimizer_state == OptimizerState::cpu;
  if (!is_cpu && below(random, 2)) plan.update = UpdateTime::backward;
}

std::optional<PlannedFor> random_run(Random& random) {
  if (below(random, 2)) return std::nullopt;
  return PlannedFor{.loss_rows = below(random, 5000),
                    .mlp_rows = below(random, 2) * below(random, 5000),
                    .budget = size_t{random.next()} << below(random, 20),
                    .peak = size_t{random.next()} << below(random, 20),
                    .machine = std::string(static_cast<size_t>(below(random, 30)), 'x')};
}

StoredPlan random_plan(uint64_t seed) {
  Random random(seed);
  StoredPlan stored;
  Plan& plan = stored.plan;
  const int values = below(random, 300), nodes = 1 + below(random, 200);
  plan.placement = in_runs<Placement>(random, values, [&] { return Placement(below(random, 3)); });
  for (ValueId v = 0; v < values; ++v) {
    if (plan.placement[v] != Placement::offload || below(random, 2)) continue;
    plan.offloads.push_back({.value = v,
                             .rows = below(random, 2) ? int64_t{random.next()} << 20 : -1,
                             .target = OffloadTarget(below(random, 2)),
                             .release = below(random, nodes + 1) - 1,
                             .fetch = below(random, nodes + 1) - 1});
  }
  plan.chunks = in_runs<int>(random, below(random, nodes + 1), [&] { return below(random, 4); });
  if (below(random, 4)) add_regions(random, plan.regions, 0, nodes);
  plan.optimizer_state = OptimizerState(below(random, 3));
  if (plan.optimizer_state == OptimizerState::streamed && below(random, 2)) {
    plan.state_bytes_on_device = size_t{random.next()} << below(random, 20);
  }
  if (below(random, 4) == 0) plan.buckets_in_flight = 2 + below(random, 8);
  if (below(random, 3) == 0) add_units(random, plan, nodes);
  if (plan.optimizer_state == OptimizerState::streamed && below(random, 4) == 0) {
    plan.bucket_elements = 2048 * (1 + below(random, 999));
  }
  stored.made_for = random_run(random);
  if (below(random, 2)) return stored;
  for (int n = 0; n < nodes; ++n) {
    plan.fingerprints.push_back(uint64_t{random.next()} << 32 | random.next());
  }
  return stored;
}

int version_for(const StoredPlan& stored) {
  const auto in_chunks = [](const Region& r) { return r.chunks > 1; };
  if (!stored.plan.units.empty() || stored.plan.bucket_elements > 0) return 5;
  if (stored.plan.buckets_in_flight > 0) return 4;
  if (stored.made_for || stored.plan.state_bytes_on_device) return 3;
  return std::ranges::any_of(stored.plan.regions, in_chunks) ? 2 : 1;
}

TEST_F(PlanFile, LoadsWhatWasSavedAndSavesTheSameBytes) {
  const auto path = directory.path() / "plan.json", again = directory.path() / "again.json";
  std::set<int> versions;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const StoredPlan plan = random_plan(seed);
    const nlohmann::json written = to_json(plan);
    ASSERT_TRUE(plan_from_json({written, "a plan"}) == plan) << seed;
    ASSERT_EQ(written["spool_plan"], version_for(plan)) << seed;
    versions.insert(written["spool_plan"].get<int>());
    ASSERT_EQ(diff(plan.plan, plan.plan), "");
    if (seed % 8 != 0) continue;  // every file waits for the disk
    save_plan(path, plan);
    ASSERT_TRUE(load_plan(path) == plan) << seed << '\n' << content_of(path);
    save_plan(again, load_plan(path));
    ASSERT_EQ(content_of(again), content_of(path)) << seed;
  }
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"plan.json", "again.json"}));
  EXPECT_EQ(versions, (std::set<int>{1, 2, 3, 4, 5}));
}

TEST_F(PlanFile, IsReadable) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, {.plan = small_plan()});
  EXPECT_EQ(content_of(path), R"({
  "spool_plan": 1,
  "chunks": {"8":[2],"nodes":3},
  "offloads": [{"release":2,"rows":512,"to":"disk","value":3}],
  "optimizer_state": "streamed",
  "placement": {"offload":[3],"recompute":[2,[4,5]],"values":7},
  "regions": [[0,2],[1,1]],
  "tape_fingerprints": ["0000000000000001","fedcba9876543210","0000000000000003"]
}
)");
  save_plan(path, {});
  EXPECT_EQ(content_of(path), "{\n  \"spool_plan\": 1\n}\n");
  for (uint64_t seed = 0; seed < 9; ++seed) {
    save_plan(path, random_plan(seed));
    std::istringstream lines(content_of(path));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST_F(PlanFile, WithARegionInChunksIsOfVersionTwo) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, {.plan = small_plan_in_chunks()});
  EXPECT_EQ(content_of(path), R"({
  "spool_plan": 2,
  "chunks": {"8":[2],"nodes":3},
  "offloads": [{"release":2,"rows":512,"to":"disk","value":3}],
  "optimizer_state": "streamed",
  "placement": {"offload":[3],"recompute":[2,[4,5]],"values":7},
  "regions": [[0,2],{"chunks":8,"leaves":[2,[4,5]],"nodes":[0,1]},[2,2]],
  "tape_fingerprints": ["0000000000000001","fedcba9876543210","0000000000000003"]
}
)");
  const Plan expected = {
      .regions = {{.first = 3, .last = 6},
                  {.first = 7, .last = 12, .chunks = 8, .leaves = {31}},
                  {.first = 13, .last = 13, .chunks = 2, .leaves = {40, 41, 42}}}};
  const auto written = directory.file("written.json", R"({"spool_plan": 2, "regions": [[3,6],
      {"nodes":[7,12],"chunks":8,"leaves":[31]}, {"nodes":[13,13],"chunks":2,"leaves":[40,41,42]}]})");
  EXPECT_EQ(load_plan(written).plan, expected);
}

TEST_F(PlanFile, OfAnyKnownVersionIsReadAndWrittenAsTheOldestThatCanHoldIt) {
  const auto path = directory.file("plan.json", R"({"spool_plan": 2, "regions": [[3, 6]]})");
  const StoredPlan plan = load_plan(path);
  EXPECT_EQ(plan.plan, (Plan{.regions = {{.first = 3, .last = 6}}}));
  EXPECT_FALSE(plan.made_for);
  save_plan(path, plan);
  EXPECT_EQ(content_of(path), "{\n  \"spool_plan\": 1,\n  \"regions\": [[3,6]]\n}\n");
  expect_refused(R"({"spool_plan": 1, "regions": [{"nodes":[7,12],"chunks":8,"leaves":[31]}]})",
                 "field regions[0]: {\"chunks\":8,\"leaves\":[31],\"nodes\":[7,12]} is a region in "
                 "chunks, which a plan of version 1 cannot have; write \"spool_plan\": 2");
}

TEST_F(PlanFile, WithTheRunItWasMadeForIsOfVersionThree) {
  const auto path = directory.path() / "plan.json";
  const StoredPlan stored = {
      .plan = {.optimizer_state = OptimizerState::streamed, .state_bytes_on_device = 4096},
      .made_for = PlannedFor{.loss_rows = 512,
                             .budget = size_t{1} << 40,
                             .peak = 12345,
                             .machine = "a \"machine\"\n\x01 caf\xc3\xa9"}};
  save_plan(path, stored);
  EXPECT_EQ(content_of(path), R"({
  "spool_plan": 3,
  "made_for": {
    "budget_bytes": 1099511627776,
    "loss_rows": 512,
    "machine": "a \"machine\"\n\u0001 caf\u00e9",
    "mlp_rows": 0,
    "peak_bytes": 12345
  },
  "optimizer_state": "streamed",
  "state_bytes_on_device": 4096
}
)");
  EXPECT_TRUE(load_plan(path) == stored);
  EXPECT_EQ(diff({}, stored.plan),
            "optimizer state: device -> streamed, 4096 bytes of it on the device\n");
  for (const char* version : {"1", "2"}) {
    for (const char* field : {R"("made_for": {})", R"("state_bytes_on_device": 0)"}) {
      expect_refused(sentence("{\"spool_plan\": ", version, ", ", field, "}"),
                     sentence("a plan of version ", version,
                              " cannot have this; write "
                              "\"spool_plan\": 3"));
    }
  }
}

TEST_F(PlanFile, RefusesFilesThatAreNoPlan) {
  expect_error(ErrorKind::file, {"cannot be read"}, [&] { load_plan(directory.path() / "none"); });
  expect_error(ErrorKind::file, {"is a directory"}, [&] { load_plan(directory.path()); });
  expect_refused("", "is not JSON");
  expect_refused("\x89PNG\r\n", "is not JSON");
  expect_refused(std::string(100'000, '['), "nested deeper than");
  expect_refused("[1]", "is not a plan");
  expect_refused(R"({"model_type": "gpt2"})", "is not a plan");
  expect_refused(R"({"spool_plan": 6, "new": []})",
                 "version 6, and this program reads versions up to 5");
  expect_refused(R"({"spool_plan": 0})", "a plan of version 0");
  expect_refused(R"({"spool_plan": -1})", "a plan of version -1");
  expect_refused(R"({"spool_plan": 18446744073709551615})", "a plan of version 1844674407370955");
  expect_refused(R"({"spool_plan": "1"})", "a plan of version \"1\"");
  expect_refused(R"({"spool_plan": 1.0})", "a plan of version 1.0");
  expect_refused(R"({"spool_plan": 1, "spool_plan": 1})", "twice");
  expect_fields_refused(R"("region": [])", "a plan has no field \"region\"");
  std::filesystem::resize_file(directory.file("plan.json", ""), 40'000'000);
  expect_error(ErrorKind::file, {"at most"}, [&] { load_plan(directory.path() / "plan.json"); });
}

TEST_F(PlanFile, RefusesTruncatedFiles) {
  const auto path = directory.path() / "whole.json";
  save_plan(path, {.plan = small_plan_in_chunks()});
  const std::string whole = content_of(path);
  for (size_t n = 0; n + 3 < whole.size(); ++n) {
    expect_refused(whole.substr(0, n), "is not JSON");
  }
}

TEST_F(PlanFile, DoesNotSaveAPlanThatCouldNotBeLoaded) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, {.plan = small_plan()});
  const std::string before = content_of(path);
  const auto expect_unsaved = [&](std::string_view words, const Plan& plan) {
    expect_error(ErrorKind::file, {words}, [&] { save_plan(path, {.plan = plan}); });
  };
  expect_unsaved("whole number from 4", {.regions = {{.first = 4, .last = 2}}});
  expect_unsaved("regions[0].chunks: 0 is not",
                 {.regions = {{.first = 4, .last = 5, .chunks = 0}}});
  expect_unsaved("regions[0].chunks: 1 is not", {.regions = {{.last = 5, .leaves = {2}}}});
  expect_unsaved("have no leaves", {.regions = {{.last = 5, .chunks = 2}}});
  expect_unsaved("2147483647 is not",
                 {.regions = {{.last = 5, .chunks = 2, .leaves = {2147483647, -2147483648}}}});
  expect_unsaved("\"-3\" is not a number of chunks", {.chunks = {1, -3}});
  expect_unsaved("only state that is streamed", {.state_bytes_on_device = 512});
  expect_unsaved("is not a whole number", {.optimizer_state = OptimizerState::streamed,
                                           .state_bytes_on_device = size_t{1} << 63});
  expect_unsaved("1000001", {.placement = std::vector(1'000'001, Placement::keep)});
  const auto expect_unsaved_for = [&](std::string_view words, const PlannedFor& run) {
    expect_error(ErrorKind::file, {words}, [&] { save_plan(path, {.made_for = run}); });
  };
  expect_unsaved_for("-1 is not", {.loss_rows = -1});
  expect_unsaved_for("at most 200", {.machine = std::string(201, 'm')});
  expect_unsaved_for("not UTF-8", {.machine = "\xff"});
  EXPECT_EQ(content_of(path), before);
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"plan.json"});
  expect_error(ErrorKind::file, {"cannot be written"},
               [&] { save_plan(directory.path() / "no" / "plan.json", {}); });
}

}  // namespace
}  // namespace spool::testing
