// runs: numbers
// The JSON report of a plan: the memory of a step adds up, in every instant, to what is foretold.

#include "spool/models/training/plan_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/families/gpt2.h"
#include "spool/models/training/run_options.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/copy_lanes.h"
#include "spool/runtime/memory/allocation_log.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

const Machine h200 = *named_machine("h200");

TrainingConfig preset(const char* model, DType dtype = DType::f32, int64_t accumulate = 1) {
  TrainingConfig config = run_options({{"model", {model}}}).training;
  config.dtype = dtype;
  config.batch = 2;
  config.accumulate = accumulate;
  return config;
}

StepRequest with(const Policy& policy) { return {.policy = policy, .spill_directory = "/tmp"}; }

json report_of(const TrainingConfig& config, const StepRequest& request,
               const Machine& machine = h200, const SampleLength& length = sample) {
  return plan_report(plan_run(config, request, machine, length), machine, "a model");
}

std::vector<size_t> sums(const json& lists) {
  std::vector<size_t> sums(lists[0].size());
  for (const json& list : lists) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += list.at(i).get<size_t>();
  }
  return sums;
}

void check_totals(const json& memory) {
  const auto total = memory["total_bytes"].get<std::vector<size_t>>();
  const auto times = memory["times_ms"].get<std::vector<double>>();
  ASSERT_EQ(memory["bytes"].size(), memory["categories"].size());
  for (const json& list : memory["bytes"]) ASSERT_EQ(list.size(), times.size());
  EXPECT_EQ(sums(memory["bytes"]), total);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_EQ(times.front(), 0);
  const size_t max = *std::ranges::max_element(total);
  EXPECT_EQ(total.at(memory["peak_index"]), max);
  EXPECT_EQ(memory["step_peak_bytes"], max + memory["holes_bytes"].get<size_t>());
}

// What is live at the peak, by purpose.
void check_purposes(const json& report) {
  const json& memory = report["memory"];
  std::map<std::string, size_t> by_purpose;
  for (const auto& [purpose, bytes] : report["peak_bytes_by_purpose"].items()) {
    by_purpose[purpose] = 0;
  }
  for (size_t c = 0; c < memory["categories"].size(); ++c) {
    const auto category = memory["categories"][c].get<std::string>();
    const bool is_activation = category.starts_with("activations: ");
    const bool counts_so = is_activation || category == "copies in flight";
    by_purpose[counts_so ? "activations" : category] +=
        memory["bytes"][c][memory["peak_index"].get<size_t>()].get<size_t>();
  }
  EXPECT_EQ(json(by_purpose), report["peak_bytes_by_purpose"]);
}

// Checks that each value is live, in its category, in all of its instants.
void check_values(const json& memory) {
  const json& bytes = memory["bytes"];
  std::vector<std::vector<size_t>> listed(bytes.size(),
                                          std::vector<size_t>(memory["times_ms"].size()));
  EXPECT_FALSE(memory["values"].empty());
  for (const json& value : memory["values"]) {
    const size_t begin = value["begin"], end = value["end"];
    ASSERT_LT(begin, end);
    ASSERT_LE(end, listed[0].size());
    EXPECT_FALSE(value["until"].get<std::string>().empty());
    std::vector<size_t>& of_category = listed.at(value["category"]);
    for (size_t i = begin; i < end; ++i) of_category[i] += value["bytes"].get<size_t>();
  }
  for (size_t c = 0; c < listed.size(); ++c) {
    for (size_t i = 0; i < listed[c].size(); ++i) ASSERT_LE(listed[c][i], bytes[c][i]);
  }
}

void check_phases(const json& memory) {
  const json& phases = memory["phases"];
  std::vector<std::string> expected;
  for (int64_t i = 0; i < memory["micro_batches_shown"]; ++i) {
    expected.insert(expected.end(), {"forward", "loss", "backward"});
  }
  expected.emplace_back("optimizer");
  std::vector<std::string> names;
  double end = 0;
  for (const json& phase : phases) {
    names.push_back(phase["name"]);
    EXPECT_EQ(phase["begin_ms"], end);
    end = phase["end_ms"];
  }
  EXPECT_EQ(names, expected);
  EXPECT_EQ(end, memory["times_ms"].back());
}

void check_lanes(const json& report) {
  std::map<std::string, size_t> copies, bytes;
  for (const json& copy : report["lanes"]) {
    EXPECT_LE(copy["begin_ms"], copy["end_ms"]);
    EXPECT_LE(copy["end_ms"], report["memory"]["times_ms"].back());
    ++copies[copy["lane"]];
    bytes[copy["lane"]] += copy["bytes"].get<size_t>();
  }
  EXPECT_EQ(report["lane_totals"].size(), copies.size());
  for (const json& total : report["lane_totals"]) {
    EXPECT_EQ(total["copies"], copies[total["lane"]]);
    EXPECT_EQ(total["bytes"], bytes[total["lane"]]);
  }
}

void check_report(const json& report) {
  const json& memory = report["memory"];
  check_totals(memory);
  check_values(memory);
  check_phases(memory);
  check_lanes(report);
  EXPECT_GE(report["explanation"].size(), 3u);
  if (report["peak_is_in"] != "step") {
    EXPECT_LT(memory["step_peak_bytes"], report["foretold_peak_bytes"]);
    return;
  }
  EXPECT_EQ(memory["step_peak_bytes"], report["foretold_peak_bytes"]);
  check_purposes(report);
}

std::set<std::string> cells_of(const json& report) {
  std::set<std::string> cells;
  for (const json& row : report["grid"]["cells"]) cells.insert(row.begin(), row.end());
  return cells;
}

bool has_category(const json& report, const char* name) {
  const json& categories = report["memory"]["categories"];
  return std::ranges::find(categories, name) != categories.end();
}

TEST(PlanReportMemory, AddsUpForEveryKindOfStep) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t accumulate : {1, 2, 8}) {
        SCOPED_TRACE(sentence(model, " ", name(dtype), " ", accumulate));
        const json report = report_of(preset(model, dtype, accumulate), with({}));
        check_report(report);
        EXPECT_EQ(report["memory"]["micro_batches_shown"], std::min<int64_t>(accumulate, 3));
        EXPECT_EQ(report["accumulate"], accumulate);
        EXPECT_EQ(report["lanes"], json::array());
        EXPECT_EQ(cells_of(report), std::set<std::string>{"keep"});
      }
    }
  }
}

TEST(PlanReportMemory, AddsUpUnderEveryPolicy) {
  const TrainingConfig config = preset("gpt2-tiny");
  const json recomputed = report_of(config, with({.norms = true, .block = true}));
  check_report(recomputed);
  EXPECT_EQ(cells_of(recomputed), (std::set<std::string>{"keep", "recompute"}));
  TrainingConfig chunks = config;
  chunks.chunks.loss_rows = 100;
  chunks.chunks.mlp_rows = 64;
  const json in_chunks = report_of(chunks, with({}));
  check_report(in_chunks);
  EXPECT_EQ(cells_of(in_chunks), (std::set<std::string>{"keep", "chunked"}));
  for (const OptimizerState state : {OptimizerState::streamed, OptimizerState::cpu}) {
    const json report = report_of(config, with({.optimizer_state = state}));
    check_report(report);
    EXPECT_EQ(report["lanes"][0]["name"], "optimizer state");
  }
}

// The slower machine has time to copy every value.
TEST(PlanReportMemory, NamesCopiesByTheValuesThatAreOffloaded) {
  const TrainingConfig config = preset("gpt2-tiny", DType::f32, 2);
  const Machine slow = slow_machine(h200.architecture);
  for (const OffloadTarget target : {OffloadTarget::host, OffloadTarget::disk}) {
    const Policy all{.offload = Offloading::all, .min_offload_bytes = 1, .target = target};
    const json report = report_of(config, with(all), slow);
    check_report(report);
    EXPECT_TRUE(has_category(report, "copies in flight"));
    EXPECT_TRUE(cells_of(report).contains(name(target)));
    const bool to_disk = target == OffloadTarget::disk;
    EXPECT_EQ(report["disk_bytes"] > 0, to_disk);
    std::map<std::string, int> lanes;
    for (const json& copy : report["lanes"]) {
      const auto name = copy["name"].get<std::string>();
      if (name == "attn.c_attn of layer 2") ++lanes[copy["lane"]];
      EXPECT_GT(copy["bytes"], 0);
    }
    EXPECT_EQ(lanes, (std::map<std::string, int>{{"copy out", 2}, {"copy in", 2}}));
    const bool says = std::ranges::any_of(report["lanes"], [](const json& copy) {
      return copy["name"] == "attn.c_attn of layer 2, to the disk";
    });
    EXPECT_EQ(says, to_disk);
  }
}

TEST(PlanReportMemory, NamesTheRowsThatStayOnTheDevice) {
  const TrainingConfig config = preset("gpt2-tiny");
  const Machine slow = slow_machine(h200.architecture);
  StepRequest request = with({.offload = Offloading::all, .min_offload_bytes = 1});
  request.plan = plan_run(config, request, slow).plans.step;
  for (Offload& offload : request.plan->offloads) offload.rows = 1;
  const json report = report_of(config, request, slow);
  check_report(report);
  std::multiset<size_t> bytes;
  for (const json& value : report["memory"]["values"]) {
    if (value["name"] != "attn.c_attn" || value["layer"] != 2) continue;
    const json& category = report["memory"]["categories"][value["category"].get<size_t>()];
    if (category == "activations: attention") bytes.insert(value["bytes"].get<size_t>());
  }
  // After the release only the row that stays; before it, both.
  const size_t row = sizeof(float) * config.seq * 3 * config.model.shape().channels;
  EXPECT_EQ(bytes, (std::multiset<size_t>{row, 2 * row}));
}

TEST(PlanReportMemory, CountsCopiesThatAreNotShown) {
  const TrainingConfig config = preset("gpt2-tiny");
  const PlannedRun run =
      plan_run(config, with({.optimizer_state = OptimizerState::streamed}), h200);
  const RehearsedStep step =
      rehearse_step(describe_step(config), run.plans, h200, {.allocations = true});
  NamedNodes nodes;
  read_program(config, [&](const Program& program) { nodes = named_nodes(program); });
  const CopyLanes all = copy_lanes(step, nodes), few = copy_lanes(step, nodes, 3);
  ASSERT_GT(all.copies.size(), 3u);
  EXPECT_EQ(few.copies.size(), 3u);
  ASSERT_EQ(few.totals.size(), all.totals.size());
  for (size_t i = 0; i < all.totals.size(); ++i) {
    EXPECT_EQ(few.totals[i].copies, all.totals[i].copies);
    EXPECT_EQ(few.totals[i].bytes, all.totals[i].bytes);
  }
}

bool says(const json& report, const char* words) {
  return std::ranges::any_of(report["explanation"], [&](const json& sentence) {
    return sentence.get<std::string>().find(words) != std::string::npos;
  });
}

TEST(PlanReportWords, SayWhenThePeakIsIfTheWholeStepIsShown) {
  EXPECT_TRUE(says(report_of(preset("gpt2-tiny", DType::f32, 3), with({})), " into the step"));
  EXPECT_FALSE(says(report_of(preset("gpt2-tiny", DType::f32, 8), with({})), " into the step"));
}

TEST(PlanReportWords, SayThatALargerBudgetDoesNotHelpWhatIsSetByHand) {
  RunPlanner search(preset("gpt2-tiny"), {.steps = with({.block = true})}, sample, h200);
  const json report = plan_report(search.plan_within(search.steps().keep_all_peak()), h200,
                                  "gpt2-tiny", search.steps().frontier());
  EXPECT_TRUE(
      says(report, "No larger budget would make the step faster with what is set by hand."));
}

TEST(PlanReportWords, ARefusalSaysWhatWasPlannedAndTheBudget) {
  StepRequest request = with({});
  request.budget = 1 << 20;
  const json report = report_of(preset("gpt2-tiny"), request);
  EXPECT_TRUE(report.contains("error"));
  EXPECT_EQ(report["model"], "a model");
  EXPECT_EQ(report["budget_bytes"], 1 << 20);
  EXPECT_GT(report["minimum_budget_bytes"], 1 << 20);
}

TEST(PlanReportMemory, AddsUpWithinEveryBudget) {
  const TrainingConfig config = preset("gpt2-tiny");
  const Choices all{.placement = true,
                    .loss_chunk = true,
                    .regions = true,
                    .state_share = true,
                    .offload_to = OffloadTarget::host};
  RunPlanner search(config, {.steps = {.choose = all}}, sample, h200);
  const size_t min = search.steps().smallest_budget(), max = search.steps().keep_all_peak();
  std::set<std::string> places;
  for (const size_t budget : {min, min + (max - min) / 4, (min + max) / 2, max}) {
    const json report = plan_report(search.plan_within(budget), h200, "gpt2-tiny");
    SCOPED_TRACE(budget);
    check_report(report);
    EXPECT_EQ(report["budget_bytes"], budget);
    EXPECT_EQ(report["budget_is"], "set");
    places.insert(report["peak_is_in"].get<std::string>());
  }
  EXPECT_TRUE(places.contains("step"));
}

// With a prompt of many more tokens than a small model's batch.
TEST(PlanReportMemory, SaysThatThePeakIsNotInTheStep) {
  TrainingConfig config = small();
  config.model =
      Gpt2Config{.layers = 1, .heads = 2, .channels = 16, .context = 4096, .vocabulary = 64};
  config.batch = 1;
  config.seq = 8;
  const json report = report_of(config, with({}), h200, {.prompt = 4000, .drawn = 10});
  EXPECT_EQ(report["peak_is_in"], "sample");
  check_report(report);
  EXPECT_NE(report["explanation"][1].get<std::string>().find("a text sample"), std::string::npos);
}

TEST(PlanReportMemory, HasNoSearchIfNoneWasRun) {
  const PlannedRun run = plan_run(preset("gpt2-tiny"), with({}), h200);
  ASSERT_FALSE(run.search);
  const json report = plan_report(run, h200, "gpt2-tiny");
  for (const char* key : {"keep_all_peak_bytes", "keep_all_step_ms", "lower_bound_ms", "gap",
                          "plan_ms", "rehearsals"}) {
    EXPECT_TRUE(report[key].is_null()) << key;
  }
  EXPECT_EQ(report["budget_bytes"], run.budget);
  EXPECT_EQ(report["budget_is"], "none");
  EXPECT_TRUE(says(report, "no budget is set."));
  EXPECT_EQ(report["model"], "gpt2-tiny");
  EXPECT_FALSE(report.contains("frontier"));
}

TEST(PlanReportMemory, NamesValuesAndHowLongTheyAreKept) {
  const json report = report_of(preset("gpt2-tiny"), with({}));
  const json& memory = report["memory"];
  const auto find = [&](const char* name, int layer) {
    const json& values = memory["values"];
    const auto at = std::ranges::find_if(
        values, [&](const json& v) { return v["name"] == name && v["layer"] == layer; });
    return at == values.end() ? json() : *at;
  };
  const json gelu = find("gelu", 1);
  EXPECT_EQ(gelu["until"], "backward of mlp.c_proj");
  EXPECT_EQ(memory["categories"][gelu["category"].get<size_t>()], "activations: mlp");
  EXPECT_EQ(find("ln_1", 3)["until"], "backward of attn.c_attn");
  const json residual = find("add_2", 0);
  EXPECT_EQ(residual["until"], "backward of ln_1 of layer 1");
  const json weight = find("mlp.c_fc.weight", 2);
  EXPECT_EQ(weight["until"], "end of the step");
  EXPECT_EQ(weight["begin"], 0);
  EXPECT_EQ(report["grid"]["rows"][0], "ln_1");
  EXPECT_EQ(report["grid"]["layers"], 4);
}

// Neighbours are merged, as chunks of a few rows make many instants.
TEST(PlanReportMemory, IsOfAtMostTwoThousandInstantsAndKeepsThePeak) {
  TrainingConfig config = preset("gpt2-tiny", DType::f32, 3);
  config.chunks.mlp_rows = 16;
  const json report = report_of(config, with({}));
  check_report(report);
  EXPECT_LE(report["memory"]["times_ms"].size(), 2002u);
  EXPECT_GT(report["memory"]["times_ms"].size(), 1000u);
  EXPECT_LE(report["memory"]["values"].size(), 1500u);
}

TEST(PlanReportMemory, HasPoliciesWithTheFrontier) {
  const Choices placement{.placement = true};
  RunPlanner search(preset("gpt2-tiny"), {.steps = {.choose = placement}}, sample, h200);
  Frontier frontier = search.steps().frontier();
  frontier.policies = search.steps().policies();
  const PlannedRun run = search.plan_within(search.steps().smallest_budget());
  const json report = plan_report(run, h200, "gpt2-tiny", frontier);
  EXPECT_EQ(report["frontier"].size(), 21u);
  const json& policies = report["policies"];
  EXPECT_EQ(policies[0]["name"], "keep all");
  EXPECT_EQ(policies[0]["peak_bytes"], search.steps().keep_all_peak());
  EXPECT_EQ(policies[0]["step_ms"], report["keep_all_step_ms"]);
  EXPECT_GE(policies.size(), 7u);
  EXPECT_LE(policies.size(), 12u);
  for (size_t i = 1; i < policies.size(); ++i) {
    EXPECT_LE(policies[i]["peak_bytes"], policies[0]["peak_bytes"]) << policies[i];
    EXPECT_GT(policies[i]["step_ms"], policies[0]["step_ms"]) << policies[i];
  }
  const json& words = report["explanation"];
  EXPECT_NE(words.dump().find("the next larger budget"), std::string::npos);
}

TEST(PlanReportMemory, IsOneLineForEachMember) {
  const json report = report_of(preset("gpt2-tiny"), with({}));
  const std::string text = report_text(report);
  EXPECT_EQ(json::parse(text), report);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(text, '\n')), report.size() + 2);
}

}  // namespace
}  // namespace spool::testing
