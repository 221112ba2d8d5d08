// Plans with units of parameters as files, and without any.

#include "spool/planner/plan_json.h"
#include "tests/planner/plan_file_testing.h"

namespace spool::testing {
namespace {

using PlanUnits = PlanFile;

Plan plan_with_units() {
  return {.optimizer_state = OptimizerState::streamed,
          .units = {{.first = 0,
                     .last = 2,
                     .parameters = {4},
                     .first_readers = {1},
                     .parameters_away = true,
                     .backward_fetch = 2,
                     .in_backward = false},
                    {.first = 3,
                     .last = 6,
                     .parameters = {2, 3},
                     .first_readers = {3, 5},
                     .parameters_away = true,
                     .gradients_away = true,
                     .forward_fetch = 1,
                     .backward_fetch = 12,
                     .stays = true,
                     .all_in_forward = true},
                    {.first = 8,
                     .last = 8,
                     .parameters = {5},
                     .first_readers = {8},
                     .gradients_away = true,
                     .backward_fetch = 9}},
          .update = UpdateTime::backward,
          .units_leaving = 0.5,
          .bucket_elements = 65536};
}

TEST_F(PlanUnits, AreInFilesOfVersionFive) {
  const auto path = directory.path() / "plan.json";
  save_plan(path, {.plan = plan_with_units()});
  EXPECT_EQ(content_of(path), R"({
  "spool_plan": 5,
  "bucket_elements": 65536,
  "optimizer_state": "streamed",
  "units": [
    {
      "away": ["parameters"],
      "fetch": [0,2],
      "first_readers": [1],
      "in_backward": false,
      "nodes": [0,2],
      "parameters": [4]
    },
    {
      "all_in_forward": true,
      "away": ["parameters","gradients"],
      "fetch": [1,12],
      "first_readers": [3,5],
      "nodes": [3,6],
      "parameters": [2,3],
      "stays": true
    },
    {"away":["gradients"],"fetch":[0,9],"first_readers":[8],"nodes":[8,8],"parameters":[5]}
  ],
  "units_leaving": 0.5,
  "update": "backward"
}
)");
  EXPECT_EQ(load_plan(path).plan, plan_with_units());
}

TEST_F(PlanUnits, HaveWhatTheyLeaveOutAsUsual) {
  const auto written = directory.file("written.json", R"({"spool_plan": 5, "units": [
      {"nodes": [3, 6], "parameters": [2], "first_readers": [4], "fetch": [3, 6]}]})");
  EXPECT_EQ(load_plan(written).plan, (Plan{.units = {{.first = 3,
                                                      .last = 6,
                                                      .parameters = {2},
                                                      .first_readers = {4},
                                                      .forward_fetch = 3,
                                                      .backward_fetch = 6}}}));
}

TEST_F(PlanUnits, ThatNoTapeCouldFollowAreNotSaved) {
  Plan plan = plan_with_units();
  plan.units[1].backward_fetch = 5;
  const auto path = directory.path() / "plan.json";
  expect_error(ErrorKind::file, {"nodes 3 to 6 is fetched before node 5 in backward"},
               [&] { save_plan(path, {.plan = plan}); });
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Such a plan is of a run with nothing away, of whichever version its file is.
TEST_F(PlanUnits, MayBeAbsentAsBefore) {
  const auto plan_of = [&](int version) {
    const std::string text = sentence("{\"spool_plan\": ", version, ", \"regions\": [[3, 6]]}");
    return load_plan(directory.file("plan.json", text)).plan;
  };
  for (int version = 1; version <= newest_plan_version; ++version) {
    EXPECT_EQ(plan_of(version), (Plan{.regions = {{.first = 3, .last = 6}}})) << version;
    EXPECT_FALSE(uses_homes(plan_of(version)));
  }
  for (int version = 1; version <= 4; ++version) {
    for (const char* field : {R"("units": [])", R"("update": "end")", R"("units_leaving": 1)",
                              R"("bucket_elements": 2048)"}) {
      expect_refused(
          sentence("{\"spool_plan\": ", version, ", ", field, "}"),
          sentence("a plan of version ", version, " cannot have this; write \"spool_plan\": 5"));
    }
  }
}

}  // namespace
}  // namespace spool::testing
