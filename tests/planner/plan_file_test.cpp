// Plans as files: what is saved comes back, whatever is wrong with a file is said in a sentence,
// and two plans are told apart.

#include "spool/planner/plan_file.h"

#include <nlohmann/json.hpp>

#include "spool/autograd/ops.h"
#include "spool/planner/plan_json.h"
#include "spool/planner/report/plan_diff.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class PlanFileTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  std::string refusal(const std::string& text) {
    const auto path = directory.file("plan.json", text);
    const std::string said = error_of([&] { load_plan(path); });
    EXPECT_TRUE(said.empty() || said.starts_with(path.string())) << said;
    return said;
  }
  std::string refusal_of(const std::string& fields) {
    return refusal("{\"spool_plan\": 1, " + fields + "}");
  }
};

int below(Random& random, int n) { return static_cast<int>(random.next() % uint32_t(n)); }

// Of about equal things in a row, as plans are.
template <class T, class Draw>
std::vector<T> in_runs(Random& random, int count, Draw draw) {
  std::vector<T> all;
  while (std::ssize(all) < count) {
    all.insert(all.end(), static_cast<size_t>(1 + below(random, 9)), draw());
  }
  all.resize(static_cast<size_t>(count));
  return all;
}

void add_regions(Random& random, std::vector<Region>& regions, int first, int end) {
  while (first < end) {
    const int length = 1 + below(random, end - first);
    if (below(random, 3)) {
      regions.push_back({.first = first, .last = first + length - 1});
      if (below(random, 2)) add_regions(random, regions, first, first + length);
    }
    first += length;
  }
}

Plan random_plan(uint64_t seed) {
  Random random(seed);
  Plan plan;
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
  if (below(random, 2)) return plan;
  for (int n = 0; n < nodes; ++n) {
    plan.fingerprints.push_back(uint64_t{random.next()} << 32 | random.next());
  }
  return plan;
}

TEST_F(PlanFileTest, WhatIsSavedComesBackAndTheSamePlanMakesTheSameBytes) {
  const auto path = directory.path() / "plan.json", again = directory.path() / "again.json";
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan plan = random_plan(seed);
    ASSERT_EQ(plan_from_json({to_json(plan), "a plan"}), plan) << seed;
    ASSERT_EQ(diff(plan, plan), "");
    if (seed % 8 != 0) continue;  // every file waits for the disk
    save_plan(path, plan);
    ASSERT_EQ(load_plan(path), plan) << seed << '\n' << content_of(path);
    save_plan(again, load_plan(path));
    ASSERT_EQ(content_of(again), content_of(path)) << seed;
  }
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"plan.json", "again.json"}));
}

Plan small_plan() {
  using enum Placement;
  return {.placement = {keep, keep, recompute, offload, recompute, recompute, keep},
          .offloads = {{.value = 3, .rows = 512, .target = OffloadTarget::disk, .release = 2}},
          .chunks = {1, 1, 8},
          .regions = {{.first = 0, .last = 2}, {.first = 1, .last = 1}},
          .optimizer_state = OptimizerState::streamed,
          .fingerprints = {1, 0xfedcba9876543210, 3}};
}

TEST_F(PlanFileTest, APersonCanReadIt) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, small_plan());
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

TEST_F(PlanFileTest, WhatIsNoPlanIsRefusedByName) {
  EXPECT_TRUE(contains(error_of([&] { load_plan(directory.path() / "none"); }), "cannot be read"));
  EXPECT_TRUE(contains(error_of([&] { load_plan(directory.path()); }), "is a directory"));
  EXPECT_TRUE(contains(refusal(""), "is not JSON"));
  EXPECT_TRUE(contains(refusal("\x89PNG\r\n"), "is not JSON"));
  EXPECT_TRUE(contains(refusal(std::string(100'000, '[')), "nested deeper than"));
  EXPECT_TRUE(contains(refusal("[1]"), "is not a plan"));
  EXPECT_TRUE(contains(refusal(R"({"model_type": "gpt2"})"), "is not a plan"));
  EXPECT_TRUE(contains(refusal(R"({"spool_plan": 2, "new": []})"), "version 2, and this program"));
  EXPECT_TRUE(contains(refusal(R"({"spool_plan": "1"})"), "a plan of version \"1\""));
  EXPECT_TRUE(contains(refusal(R"({"spool_plan": 1.0})"), "a plan of version 1.0"));
  EXPECT_TRUE(contains(refusal(R"({"spool_plan": 1, "spool_plan": 1})"), "twice"));
  EXPECT_TRUE(contains(refusal_of(R"("region": [])"), "a plan has no field \"region\""));
  std::filesystem::resize_file(directory.file("plan.json", ""), 40'000'000);
  EXPECT_TRUE(contains(error_of([&] { load_plan(directory.path() / "plan.json"); }), "at most"));
}

TEST_F(PlanFileTest, ATruncatedFileIsNoPlan) {
  const auto path = directory.path() / "whole.json";
  save_plan(path, small_plan());
  const std::string whole = content_of(path);
  for (size_t n = 0; n + 3 < whole.size(); ++n) {
    EXPECT_TRUE(contains(refusal(whole.substr(0, n)), "is not JSON")) << n;
  }
}

struct BadField {
  std::string field, said;
};

TEST_F(PlanFileTest, AFieldThatCannotBeIsNamed) {
  const std::vector<BadField> all = {
      {R"("placement": [])", "field placement: [] is not a JSON object"},
      {R"("placement": {"keep": [1]})", "field placement.values is missing"},
      {R"("placement": {"values": -1})", "-1 is not a whole number from 0 to 50000"},
      {R"("placement": {"values": 0, "recompute": [0]})",
       "field placement.recompute[0]: 0 is listed, and there are 0"},
      {R"("placement": {"values": 1e9})", "1000000000.0 is not a whole number"},
      {R"("placement": {"values": 18446744073709551615})", "is not a whole number"},
      {R"("placement": {"values": 3, "recompute": [3]})", "3 is not a whole number from 0 to 2"},
      {R"("placement": {"values": 3, "recompute": [[1, 3]]})",
       "3 is not a whole number from 1 to 2"},
      {R"("placement": {"values": 3, "recompute": [[2, 1]]})",
       "1 is not a whole number from 2 to 2"},
      {R"("placement": {"values": 3, "recompute": [[1]]})", "[1] is not [first, last]"},
      {R"("placement": {"values": 3, "recompute": 1})",
       "field placement.recompute: 1 is not a list"},
      {R"("placement": {"values": 3, "recompute": [1, [0, 2]]})", "1 is listed twice"},
      {R"("placement": {"values": 3, "recompute": [1], "offload": [1]})", "1 is listed twice"},
      {R"("placement": {"values": 3, "forget": [1]})", "none of keep, recompute, offload"},
      {R"("chunks": {"nodes": 3, "-2": [1]})", "field chunks.-2: \"-2\" is not a number of chunks"},
      {R"("chunks": {"nodes": 3, "08": [1]})", "\"08\" is not a number of chunks"},
      {R"("chunks": {"nodes": 3, "99999999999": [1]})", "is not a number of chunks"},
      {R"("regions": {})", "field regions: {} is not a list"},
      {R"("regions": [[1, 2, 3]])", "[1,2,3] is not [first, last]"},
      {R"("regions": [[-1, 2]])", "field regions[0][0]: -1 is not a whole number from 0 to 49999"},
      {R"("regions": [["a", 2]])", "\"a\" is not a whole number"},
      {R"("regions": [[0, 5], [3, 8]])", "regions: nodes 3 to 8 come after nodes 0 to 5"},
      {R"("regions": [[1, 2], [0, 5]])", "regions: the region from node 0 comes after the"},
      {R"("regions": [[0, 5]], "tape_fingerprints": ["0000000000000001"])",
       "not nodes of its tape"},
      {R"("optimizer_state": "gpu")", "\"gpu\" is none of device, streamed, cpu"},
      {R"("optimizer_state": 1)", "field optimizer_state: 1 is none of device"},
      {R"("tape_fingerprints": [1])", "field tape_fingerprints[0]: 1 is not 16 digits"},
      {R"("tape_fingerprints": ["1"])", "\"1\" is not 16 digits"},
      {R"("tape_fingerprints": ["000000000000000G"])", "is not 16 digits"},
      {R"("tape_fingerprints": "0000000000000001")", "is not a list"},
      {R"("chunks": {"nodes": 2}, "tape_fingerprints": ["0000000000000001"])", "its tape has 1"},
  };
  for (const auto& [field, said] : all) {
    EXPECT_TRUE(contains(refusal_of(field), said)) << field << '\n' << refusal_of(field);
  }
}

TEST_F(PlanFileTest, AnOffloadThatCannotBeIsNamed) {
  const std::vector<BadField> all = {
      {"3", "field offloads[0]: 3 is not a JSON object"},
      {R"({"rows": 3})", "field offloads[0].value is missing"},
      {R"({"value": 2, "row": 3})", "an offload has no \"row\""},
      {R"({"value": -1})", "-1 is not a whole number from 0 to 49999"},
      {R"({"value": 2, "rows": -2})", "-2 is not a whole number from -1"},
      {R"({"value": 2, "rows": 1.5})", "1.5 is not a whole number"},
      {R"({"value": 2, "to": "moon"})", "\"moon\" is none of host, disk"},
      {R"({"value": 2, "fetch": 4294967296})", "is not a whole number from -1 to 49999"},
      {R"({"value": 2, "release": true})", "true is not a whole number"},
      {R"({"value": 2, "release": 9})", "before node 9, which its tape does not have"},
      {R"({"value": 2}, {"value": 2})", "value 2 comes after value 2"},
      {R"({"value": 1})", "value 1 is listed, but its placement is keep"},
      {R"({"value": 99})", "value 99 is listed, but its placement is keep"},
  };
  const std::string rest = R"(, "placement": {"values": 3, "offload": [2]},
                              "tape_fingerprints": ["0000000000000001"])";
  for (const auto& [offload, said] : all) {
    const std::string is = refusal_of("\"offloads\": [" + offload + "]" + rest);
    EXPECT_TRUE(contains(is, said)) << offload << '\n' << is;
  }
}

TEST_F(PlanFileTest, APlanThatCouldNotBeReadIsNotWritten) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, small_plan());
  const std::string before = content_of(path);
  const auto refused = [&](const Plan& plan) { return error_of([&] { save_plan(path, plan); }); };
  EXPECT_TRUE(contains(refused({.regions = {{.first = 4, .last = 2}}}), "whole number from 4"));
  EXPECT_TRUE(contains(refused({.chunks = {1, -3}}), "\"-3\" is not a number of chunks"));
  EXPECT_TRUE(contains(refused({.placement = std::vector(1'000'001, Placement::keep)}), "1000001"));
  EXPECT_EQ(content_of(path), before);
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"plan.json"});
  EXPECT_TRUE(contains(error_of([&] { save_plan(directory.path() / "no" / "plan.json", {}); }),
                       "cannot be written"));
}

TEST(PlanTest, WhatNoTapeHasIsRefusedByTheTape) {
  CpuStream stream(size_t{1} << 20, 1);
  const auto refused = [&](const Plan& plan) {
    return error_of([&] { const Tape tape(stream, {.plan = plan}); });
  };
  EXPECT_EQ(refused({.regions = {{.first = -1, .last = 2}}}),
            "plan: regions: nodes -1 to 2 are not nodes of its tape");
  EXPECT_EQ(refused({.offloads = {{.value = -4}}}), "plan: offloads: value -4 cannot exist");
  EXPECT_TRUE(contains(
      refused({.placement = {Placement::offload}, .offloads = {{.value = 0, .release = -7}}}),
      "before node -7, which its tape does not have"));
  EXPECT_TRUE(contains(refused({.chunks = {1, -2}}), "node 1 cannot be cut into -2"));
}

TEST(PlanDiffTest, SaysWhatChangedALineEach) {
  Plan a = small_plan(), b = a;
  b.placement = {Placement::keep, Placement::keep, Placement::keep, Placement::offload};
  b.offloads = {{.value = 3, .fetch = 1}};
  b.chunks = {};
  b.regions = {{.first = 0, .last = 2}, {.first = 2, .last = 2}};
  b.optimizer_state = OptimizerState::cpu;
  b.fingerprints = {1, 2};
  EXPECT_EQ(diff(a, b), R"(tape: one of 3 nodes -> one of 2 nodes, which differ from node 1 on
value 2: recompute -> keep
value 3: offload, 512 rows, to disk, out before node 2 -> offload, back before node 1
values 4 to 5: recompute -> keep
node 2: 8 chunks -> 1 chunk
node 1: no region any more
node 2: a region
optimizer state: streamed -> cpu
)");
  EXPECT_EQ(diff({.fingerprints = {7}}, {}), "tape: one of 1 nodes -> any\n");
  EXPECT_EQ(diff({}, {.placement = {Placement::keep}, .chunks = {1, 0}}), "");
}

TEST(PlanDiffTest, CallsThingsByWhatMakesThem) {
  CpuStream stream(size_t{1} << 20, 1);
  Parameter weight{.name = "fc", .data = Tensor({Shape{4, 4}, DType::f32}, stream)};
  Tape tape(stream);
  const Tensor x = normal({2, 4}, DType::f32, stream, 1);
  gelu(gelu(linear(tape.input(x), weight)));
  using enum Placement;
  const Plan b = {.placement = {offload, offload, recompute, recompute, recompute, recompute},
                  .regions = {{.first = 1, .last = 2}}};
  EXPECT_EQ(diff({}, b, tape), R"(values 0 to 1 (an input to parameter fc): keep -> offload
values 2 to 5: keep -> recompute
nodes 1 to 2 (gelu to gelu): a region
)");
  EXPECT_EQ(diff({}, {.placement = {keep, keep, keep, recompute}}, tape),
            "value 3 (gelu of node 1): keep -> recompute\n");
}

}  // namespace
}  // namespace spool::testing
