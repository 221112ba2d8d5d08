// Plans as files: a saved plan is loaded unchanged, and every error names the file and the field.

#include "spool/planner/plan_file.h"

#include <nlohmann/json.hpp>

#include "spool/planner/plan_json.h"
#include "spool/planner/report/plan_diff.h"
#include "spool/runtime/files/json.h"
#include "tests/planner/plan_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class PlanFile : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  // Expects an error that names the file and has these words.
  void expect_refused(const std::string& text, std::string_view words,
                      int line = __builtin_LINE()) {
    const auto path = directory.file("plan.json", text);
    const std::string file = path.string() + ": ";
    expect_error(
        ErrorKind::file, {file, words}, [&] { load_plan(path); }, __FILE__, line);
  }
  void expect_fields_refused(const std::string& fields, std::string_view words,
                             int line = __builtin_LINE()) {
    SCOPED_TRACE(fields);
    for (const char* version : {"1", "2"}) {
      expect_refused(sentence("{\"spool_plan\": ", version, ", ", fields, "}"), words, line);
    }
  }
};

int below(Random& random, int n) { return static_cast<int>(random.next() % uint32_t(n)); }

// Random values in runs of equal ones, as plans have them.
template <class T, class Draw>
std::vector<T> in_runs(Random& random, int count, Draw draw) {
  std::vector<T> all;
  while (std::ssize(all) < count) {
    all.insert(all.end(), static_cast<size_t>(1 + below(random, 9)), draw());
  }
  all.resize(static_cast<size_t>(count));
  return all;
}

// Some, as if each node had two outputs.
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

TEST_F(PlanFile, LoadsWhatWasSavedAndSavesTheSameBytes) {
  const auto path = directory.path() / "plan.json", again = directory.path() / "again.json";
  std::set<int> versions;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan plan = random_plan(seed);
    const bool has_chunks =
        std::ranges::any_of(plan.regions, [](const Region& r) { return r.chunks > 1; });
    const nlohmann::json written = to_json(plan);
    ASSERT_EQ(plan_from_json({written, "a plan"}), plan) << seed;
    ASSERT_EQ(written["spool_plan"], has_chunks ? 2 : 1) << seed;
    versions.insert(written["spool_plan"].get<int>());
    ASSERT_EQ(diff(plan, plan), "");
    if (seed % 8 != 0) continue;  // every file waits for the disk
    save_plan(path, plan);
    ASSERT_EQ(load_plan(path), plan) << seed << '\n' << content_of(path);
    save_plan(again, load_plan(path));
    ASSERT_EQ(content_of(again), content_of(path)) << seed;
  }
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"plan.json", "again.json"}));
  EXPECT_EQ(versions, (std::set<int>{1, 2}));
}

TEST_F(PlanFile, IsReadable) {
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

TEST_F(PlanFile, WithARegionInChunksIsOfVersionTwo) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, small_plan_in_chunks());
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
  EXPECT_EQ(load_plan(written), expected);
}

TEST_F(PlanFile, OfAnyKnownVersionIsReadAndWrittenAsTheOldestThatCanHoldIt) {
  const auto path = directory.file("plan.json", R"({"spool_plan": 2, "regions": [[3, 6]]})");
  const Plan plan = load_plan(path);
  EXPECT_EQ(plan, (Plan{.regions = {{.first = 3, .last = 6}}}));
  save_plan(path, plan);
  EXPECT_EQ(content_of(path), "{\n  \"spool_plan\": 1,\n  \"regions\": [[3,6]]\n}\n");
  expect_refused(R"({"spool_plan": 1, "regions": [{"nodes":[7,12],"chunks":8,"leaves":[31]}]})",
                 "field regions[0]: {\"chunks\":8,\"leaves\":[31],\"nodes\":[7,12]} is a region in "
                 "chunks, which a plan of version 1 cannot have; write \"spool_plan\": 2");
}

TEST_F(PlanFile, RefusesFilesThatAreNoPlan) {
  expect_error(ErrorKind::file, {"cannot be read"}, [&] { load_plan(directory.path() / "none"); });
  expect_error(ErrorKind::file, {"is a directory"}, [&] { load_plan(directory.path()); });
  expect_refused("", "is not JSON");
  expect_refused("\x89PNG\r\n", "is not JSON");
  expect_refused(std::string(100'000, '['), "nested deeper than");
  expect_refused("[1]", "is not a plan");
  expect_refused(R"({"model_type": "gpt2"})", "is not a plan");
  expect_refused(R"({"spool_plan": 3, "new": []})",
                 "version 3, and this program reads versions up to 2");
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
  save_plan(path, small_plan_in_chunks());
  const std::string whole = content_of(path);
  for (size_t n = 0; n + 3 < whole.size(); ++n) {
    expect_refused(whole.substr(0, n), "is not JSON");
  }
}

struct BadField {
  std::string field, words;
};

TEST_F(PlanFile, NamesAnImpossibleField) {
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
  for (const auto& [field, words] : all) {
    expect_fields_refused(field, words);
  }
}

TEST_F(PlanFile, NamesAnImpossibleOffload) {
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
  for (const auto& [offload, words] : all) {
    expect_fields_refused("\"offloads\": [" + offload + "]" + rest, words);
  }
}

TEST_F(PlanFile, NamesAnImpossibleRegionInChunks) {
  const std::string nodes = R"("nodes": [7, 12])", chunks = R"("chunks": 8)",
                    leaves = R"("leaves": [31])";
  const std::vector<BadField> all = {
      {chunks + ", " + leaves, "field regions[0].nodes is missing"},
      {nodes + ", " + leaves, "field regions[0].chunks is missing"},
      {nodes + ", " + chunks, "field regions[0].leaves is missing"},
      {"", "field regions[0].nodes is missing"},
      {nodes + ", " + chunks + ", " + leaves + R"(, "rows": 4)",
       "field regions[0]: a region has no \"rows\"; it has nodes, chunks and leaves"},
      {R"("nodes": 7, )" + chunks + ", " + leaves,
       "field regions[0].nodes: 7 is not [first, last]"},
      {R"("nodes": [12, 7], )" + chunks + ", " + leaves,
       "field regions[0].nodes[1]: 7 is not a whole number from 12 to 49999"},
      {R"("nodes": [7, 50000], )" + chunks + ", " + leaves,
       "field regions[0].nodes[1]: 50000 is not a whole number"},
      {nodes + R"(, "chunks": 1, )" + leaves,
       "field regions[0].chunks: 1 is not a whole number from 2"},
      {nodes + R"(, "chunks": -8, )" + leaves,
       "field regions[0].chunks: -8 is not a whole number from 2"},
      {nodes + R"(, "chunks": 2147483648, )" + leaves,
       "field regions[0].chunks: 2147483648 is not a whole number"},
      {nodes + R"(, "chunks": "8", )" + leaves,
       "field regions[0].chunks: \"8\" is not a whole number"},
      {nodes + R"(, "chunks": 8.0, )" + leaves,
       "field regions[0].chunks: 8.0 is not a whole number"},
  };
  for (const auto& [region, words] : all) {
    SCOPED_TRACE(region);
    expect_refused("{\"spool_plan\": 2, \"regions\": [{" + region + "}]}", words);
  }
}

TEST_F(PlanFile, NamesImpossibleLeaves) {
  const std::vector<BadField> all = {
      {"31", "field regions[0].leaves: 31 is not a list"},
      {"[]", "regions: nodes 7 to 12 run in 8 chunks and have no leaves"},
      {"[-1]", "field regions[0].leaves[0]: -1 is not a whole number from 0 to 49999"},
      {"[31, 50000]", "field regions[0].leaves[1]: 50000 is not a whole number"},
      {"[[31, 32, 33]]", "field regions[0].leaves[0]: [31,32,33] is not [first, last]"},
      {"[[33, 31]]", "field regions[0].leaves[0][1]: 31 is not a whole number from 33"},
      {"[true]", "field regions[0].leaves[0]: true is not a whole number"},
      {"[31, 30]", "regions: nodes 7 to 12: leaves: value 30 comes after value 31"},
      {"[31, 31]", "regions: nodes 7 to 12: leaves: value 31 comes after value 31"},
      {"[[30, 33], 32]", "regions: nodes 7 to 12: leaves: value 32 comes after value 33"},
      {"[[0, 49999], 31]",
       "field regions[0].leaves: with those of the regions before, there are "
       "50001 leaves, and at most 50000 are read"},
  };
  for (const auto& [leaves, words] : all) {
    SCOPED_TRACE(leaves);
    expect_refused(R"({"spool_plan": 2, "regions": [{"nodes": [7, 12], "chunks": 8, "leaves": )" +
                       leaves + "}]}",
                   words);
  }
  expect_refused(R"({"spool_plan": 2, "regions": [{"nodes":[7,12],"chunks":8,"leaves":[31]},
                     {"nodes":[8,9],"chunks":2,"leaves":[25]}]})",
                 "regions: nodes 8 to 9 run in chunks, inside nodes 7 to 12, which do too");
}

TEST_F(PlanFile, DoesNotSaveAPlanThatCouldNotBeLoaded) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, small_plan());
  const std::string before = content_of(path);
  const auto expect_unsaved = [&](std::string_view words, const Plan& plan) {
    expect_error(ErrorKind::file, {words}, [&] { save_plan(path, plan); });
  };
  expect_unsaved("whole number from 4", {.regions = {{.first = 4, .last = 2}}});
  expect_unsaved("regions[0].chunks: 0 is not",
                 {.regions = {{.first = 4, .last = 5, .chunks = 0}}});
  expect_unsaved("regions[0].chunks: 1 is not", {.regions = {{.last = 5, .leaves = {2}}}});
  expect_unsaved("have no leaves", {.regions = {{.last = 5, .chunks = 2}}});
  expect_unsaved("2147483647 is not",
                 {.regions = {{.last = 5, .chunks = 2, .leaves = {2147483647, -2147483648}}}});
  expect_unsaved("\"-3\" is not a number of chunks", {.chunks = {1, -3}});
  expect_unsaved("1000001", {.placement = std::vector(1'000'001, Placement::keep)});
  EXPECT_EQ(content_of(path), before);
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"plan.json"});
  expect_error(ErrorKind::file, {"cannot be written"},
               [&] { save_plan(directory.path() / "no" / "plan.json", {}); });
}

}  // namespace
}  // namespace spool::testing
