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

// A unit that is as it should be, but for what is wrong of it.
std::string unit_with(const std::string& key, const std::string& value) {
  std::map<std::string, std::string> fields = {{"nodes", "[3, 6]"},
                                               {"parameters", "[2, 3]"},
                                               {"first_readers", "[3, 5]"},
                                               {"fetch", "[0, 9]"},
                                               {"away", "[\"parameters\"]"}};
  fields[key] = value;
  if (value.empty()) fields.erase(key);
  std::string all;
  for (const auto& [name, content] : fields) {
    all += sentence(all.empty() ? "" : ", ", '"', name, "\": ", content);
  }
  return "{" + all + "}";
}

TEST_F(PlanFields, NamesAnImpossibleUnit) {
  const auto expect_unit_refused = [&](const std::string& units, const std::string& words) {
    SCOPED_TRACE(units);
    expect_refused(R"({"spool_plan": 5, "units": [)" + units + "]}", words);
  };
  expect_unit_refused("3", "field units[0]: 3 is not a JSON object");
  expect_unit_refused("{}", "field units[0].nodes is missing");
  for (const char* key : {"nodes", "parameters", "first_readers", "fetch"}) {
    const std::string field = sentence("field units[0].", key);
    expect_unit_refused(unit_with(key, ""), field + " is missing");
    for (const char* wrong : {"3", "null", "\"3\"", "{}"}) {
      expect_unit_refused(unit_with(key, wrong), field + ": ");
    }
    for (const char* wrong : {"[-1, 9]", "[1.5, 9]", "[true, 9]", "[50000, 9]", "[[1, 2], 9]"}) {
      expect_unit_refused(unit_with(key, wrong), field + "[0]: ");
    }
  }
  expect_unit_refused(unit_with("nodes", "[3]"), "nodes has 1 numbers; it has a first and a last");
  expect_unit_refused(unit_with("nodes", "[3, 4, 6]"), "nodes has 3 numbers");
  expect_unit_refused(unit_with("fetch", "[0]"),
                      "fetch has 1 numbers; it has a node of forward and one of backward");
  expect_unit_refused(unit_with("away", "3"), "field units[0].away: 3 is not a list");
  for (const char* wrong : {"\"state\"", "1", "\"\"", "[]"}) {
    expect_unit_refused(unit_with("away", sentence('[', wrong, ']')),
                        sentence("field units[0].away[0]: ", wrong,
                                 " is neither \"parameters\" nor \"gradients\""));
  }
  for (const char* key : {"stays", "in_backward", "all_in_forward"}) {
    for (const char* wrong : {"1", "\"true\"", "null"}) {
      expect_unit_refused(unit_with(key, wrong), sentence("field units[0].", key, ": "));
    }
  }
  expect_unit_refused(unit_with("home", "\"host\""),
                      "field units[0]: a unit has no \"home\"; it has nodes, parameters, "
                      "first_readers, fetch, away, stays, in_backward and all_in_forward");
}

TEST_F(PlanFields, NamesUnitsThatContradictEachOther) {
  const auto expect_units_refused = [&](const std::string& units, std::string_view words) {
    SCOPED_TRACE(units);
    expect_refused(R"({"spool_plan": 5, "units": [)" + units + "]}", words);
  };
  expect_units_refused(unit_with("nodes", "[6, 3]"), "unit of nodes 6 to 3: its tape has no such");
  expect_units_refused(unit_with("parameters", "[]"), "has no parameters; leave it out");
  expect_units_refused(unit_with("parameters", "[3, 2]"), "parameter 2 comes after parameter 3");
  expect_units_refused(unit_with("first_readers", "[3]"), "2 parameters and 1 first readers");
  expect_units_refused(unit_with("first_readers", "[3, 7]"), "node 7, the first reader of");
  expect_units_refused(unit_with("fetch", "[4, 9]"), "is fetched before node 4 in forward");
  expect_units_refused(unit_with("fetch", "[0, 5]"), "is fetched before node 5 in backward");
  expect_units_refused(unit_with("away", R"(["gradients"])"),
                       "gradients are to live on the host, and the place of the optimizer's state");
  const std::string unit = unit_with("stays", "true");
  expect_units_refused(unit + ", " + unit, "unit of nodes 3 to 6 comes after nodes 3 to 6");
  expect_units_refused(unit_with("nodes", "[5, 6]") + ", " + unit, "is not one of them");
}

TEST_F(PlanFields, NamesImpossibleHomes) {
  const auto expect_refused_with = [&](const std::string& fields, const std::string& words) {
    SCOPED_TRACE(fields);
    const std::string units = ", \"units\": [" + unit_with("stays", "true") + "], ";
    expect_refused(R"({"spool_plan": 5)" + units + fields + "}", words);
  };
  for (const char* wrong : {"\"now\"", "1", "null"}) {
    expect_refused_with(sentence("\"update\": ", wrong),
                        sentence("field update: ", wrong, " is none of end, backward"));
  }
  for (const char* wrong : {"\"1\"", "null", "true", "[]"}) {
    expect_refused_with(sentence("\"units_leaving\": ", wrong), "field units_leaving: ");
  }
  for (const char* wrong : {"-1", "-0.5", "1e6", "1e300"}) {
    expect_refused_with(sentence("\"units_leaving\": ", wrong), "units may be on their way");
  }
  for (const char* wrong : {"0", "-2048", "1.5", "\"2048\"", "null"}) {
    expect_refused_with(sentence("\"bucket_elements\": ", wrong), "field bucket_elements: ");
  }
  expect_refused_with(R"("optimizer_state": "streamed", "bucket_elements": 3000)",
                      "a bucket of 3000 elements; it must be a multiple of 2048");
  expect_refused_with(R"("bucket_elements": 2048)", "buckets are of state that is streamed");
  expect_refused_with(R"("optimizer_state": "cpu", "update": "backward")",
                      "the host updates them at the end");
  expect_refused(R"({"spool_plan": 5, "update": "backward"})", "it has no units of them");
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
