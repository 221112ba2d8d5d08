// Plans in files whose fields are wrong, each in turn: the error names the file and the field.

#include <map>

#include "tests/planner/plan_file_testing.h"

namespace spool::testing {
namespace {

using PlanFields = PlanFile;

struct BadField {
  std::string field, words;
};

TEST_F(PlanFields, NamesAnImpossibleField) {
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

TEST_F(PlanFields, NamesAnImpossibleOffload) {
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
    expect_fields_refused(sentence("\"offloads\": [", offload, "]", rest), words);
  }
}

TEST_F(PlanFields, NamesAnImpossibleRegionInChunks) {
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

TEST_F(PlanFields, NamesImpossibleLeaves) {
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

TEST_F(PlanFields, NamesAnImpossibleRun) {
  const std::map<std::string, std::string> whole = {{"budget_bytes", "1"},
                                                    {"loss_rows", "2"},
                                                    {"machine", "\"h200\""},
                                                    {"mlp_rows", "3"},
                                                    {"peak_bytes", "4"}};
  const auto expect_run_refused = [&](const std::map<std::string, std::string>& run,
                                      const std::string& words) {
    std::string fields;
    for (const auto& [key, value] : run) {
      fields += sentence(fields.empty() ? "" : ", ", '"', key, "\": ", value);
    }
    SCOPED_TRACE(fields);
    expect_refused(R"({"spool_plan": 3, "made_for": {)" + fields + "}}", words);
  };
  for (const auto& [key, value] : whole) {
    auto run = whole;
    run.erase(key);
    expect_run_refused(run, "field made_for." + key + " is missing");
    const bool is_text = key == "machine";
    for (const char* wrong :
         {"-1", "1.5", "1e3", "true", "null", "[]", "9223372036854775808", "\"22GiB\""}) {
      run[key] = wrong;
      if (is_text && wrong[0] == '"') continue;
      expect_run_refused(run, "field made_for." + key + ": ");
    }
  }
  auto run = whole;
  run["machine"] = sentence('"', std::string(201, 'm'), '"');
  expect_run_refused(run, "field made_for.machine: the name has 201 bytes, and at most 200");
  run = whole;
  run["budget"] = "5";
  expect_run_refused(run, "field made_for: there is no \"budget\"; there are budget_bytes");
  expect_refused(R"({"spool_plan": 3, "made_for": []})", "field made_for: [] is not a JSON object");
}

TEST_F(PlanFields, NamesImpossibleBucketsInFlight) {
  for (const char* wrong : {"1", "-1", "1.5", "1001", "\"2\"", "null"}) {
    expect_refused(sentence(R"({"spool_plan": 4, "buckets_in_flight": )", wrong, "}"),
                   "field buckets_in_flight: ");
  }
  expect_refused(R"({"spool_plan": 3, "buckets_in_flight": 2})", "write \"spool_plan\": 4");
}

TEST_F(PlanFields, NamesAnImpossibleShareOfTheState) {
  for (const char* wrong : {"-1", "1.5", "\"1GiB\"", "9223372036854775808", "null"}) {
    expect_refused(sentence(R"({"spool_plan": 3, "optimizer_state": "streamed", )",
                            R"("state_bytes_on_device": )", wrong, "}"),
                   "field state_bytes_on_device: ");
  }
  for (const char* state : {"", R"("optimizer_state": "cpu", )"}) {
    expect_refused(
        sentence(R"({"spool_plan": 3, )", state, R"("state_bytes_on_device": 512})"),
        "512 bytes of the optimizer's state are to stay on the device, and its place is ");
  }
}

}  // namespace
}  // namespace spool::testing
