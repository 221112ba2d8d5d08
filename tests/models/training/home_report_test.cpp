// What is foretold, in JSON and in words, of parameters and gradients that live on the host.

#include "spool/models/training/home_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/training/plan_report.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/timeline_json.h"
#include "tests/models/training/flags_testing.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

const Machine rtx4090 = *named_machine("rtx4090");

FlaggedRun on(const Machine& machine, const GivenTexts& flags) {
  const FlaggedRun run{.flags = {{"model", {"gpt2-tiny"}}, {"batch", {"2"}}}, .machine = machine};
  return with_flags(run, flags);
}

PlannedRun planned(const FlaggedRun& run) { return planner_of(run)->plan(); }

json report_of(const FlaggedRun& run) { return plan_report(planned(run), run.machine, "a model"); }

std::set<std::string> names_in(const json& report, const char* lane) {
  std::set<std::string> names;
  for (const json& copy : report["lanes"]) {
    if (copy["lane"] == lane) names.insert(copy["name"].get<std::string>());
  }
  return names;
}

TEST(HomeReport, DividesTheHostsBytesByPurpose) {
  const FlaggedRun run = on(rtx4090, {{"parameters", {"host"}}});
  const json report = report_of(run);
  const json& by = report["host_bytes_by_purpose"];
  const size_t all = 4 * report["parameters"].get<size_t>(), tied = size_t{4} * 256 * 192;
  EXPECT_EQ(by.size(), 3u) << by;
  for (const auto& [purpose, expected] : std::map<std::string, size_t>{
           {"parameters", all - tied}, {"gradients", all - tied}, {"optimizer", 2 * all}}) {
    const size_t bytes = by.at(purpose);
    EXPECT_GE(bytes, expected) << purpose;
    EXPECT_LT(bytes, expected / 20 * 21) << purpose << ", in whole pages and buckets";
  }
  size_t sum = 0;
  for (const json& bytes : by) sum += bytes.get<size_t>();
  EXPECT_EQ(sum, report["host_bytes"]);
}

TEST(HomeReport, OfUpdatesInBackwardHasNoGradients) {
  const json report =
      report_of(on(rtx4090, {{"parameters", {"host"}}, {"update", {"backward"}}, {"clip", {"0"}}}));
  EXPECT_FALSE(report["host_bytes_by_purpose"].contains("gradients"));
  EXPECT_EQ(report["homes"]["update"], "backward");
}

TEST(HomeReport, CountsUnits) {
  const json all = report_of(on(rtx4090, {{"parameters", {"host"}}}))["homes"];
  EXPECT_EQ(all["units"], 6) << "embeddings, four blocks and the last norm with the head: " << all;
  EXPECT_EQ(all["parameters_away"], 6);
  EXPECT_EQ(all["gradients_away"], 6);
  EXPECT_EQ(all["words"], "parameters and gradients of 6 of 6 units on the host");
  const json some = report_of(on(rtx4090, {{"parameters", {"4MiB"}}}))["homes"];
  EXPECT_LT(some["parameters_away"], 6);
  EXPECT_GT(some["parameters_away"], 0);
}

TEST(HomeReport, IsNullIfNothingLivesOnTheHost) {
  const json report = report_of(on(rtx4090, {}));
  EXPECT_TRUE(report["homes"].is_null());
  EXPECT_TRUE(report["host_bytes_by_purpose"].empty());
}

TEST(HomeReport, NamesCopiesInLanesByWhatTheyMove) {
  const FlaggedRun run = on(rtx4090, {{"parameters", {"host"}}, {"accumulate", {"3"}}});
  const json report = report_of(run);
  EXPECT_EQ(names_in(report, "copy in"),
            (std::set<std::string>{"parameters in", "gradients in", "optimizer state"}));
  EXPECT_EQ(names_in(report, "copy out"),
            (std::set<std::string>{"gradients out", "parameters out", "optimizer state"}));
  const json backward =
      report_of(with_flags(on(rtx4090, {{"parameters", {"host"}}}),
                           {{"update", {"backward"}}, {"clip", {"0"}}, {"accumulate", {"1"}}}));
  EXPECT_EQ(names_in(backward, "copy in"),
            (std::set<std::string>{"parameters in", "state", "optimizer state"}))
      << "the tied embedding is updated at the end";
  EXPECT_EQ(names_in(backward, "copy out"),
            (std::set<std::string>{"parameters out", "state", "optimizer state"}));
  for (const json& total : report["lane_totals"]) {
    size_t bytes = 0;
    for (const json& copy : report["lanes"]) {
      if (copy["lane"] == total["lane"]) bytes += copy["bytes"].get<size_t>();
    }
    EXPECT_EQ(bytes, total["bytes"]);
  }
}

TEST(HomeReport, NamesCopiesInTimelines) {
  const FlaggedRun run =
      on(rtx4090, {{"parameters", {"host"}}, {"update", {"backward"}}, {"clip", {"0"}}});
  const PlannedRun of = planned(run);
  const RehearsedStep step =
      rehearse_step(describe_step(of.config), of.plans, rtx4090, {.trace = true});
  std::set<std::string> names;
  const json file = trace_json({{.name = "foretold", .spans = step.trace}});
  for (const json& event : file["traceEvents"]) {
    names.insert(event["name"].get<std::string>());
  }
  for (const char* name : {"copy in: parameters in", "copy in: state", "copy out: parameters out",
                           "copy out: state"}) {
    EXPECT_TRUE(names.contains(name)) << name << " is not in " << json(names);
  }
}

TEST(HomeReport, HasThePhasesOfAStep) {
  for (const char* update : {"end", "backward"}) {
    const json report =
        report_of(on(rtx4090, {{"parameters", {"host"}}, {"update", {update}}, {"clip", {"0"}}}));
    std::vector<std::string> names;
    for (const json& phase : report["memory"]["phases"]) names.push_back(phase["name"]);
    EXPECT_EQ(names, (std::vector<std::string>{"forward", "loss", "backward", "optimizer"}));
  }
}

TEST(HomeReport, SaysBelowHowManyTokensTheLinkIsTheLimit) {
  const auto with = [](int64_t batch) {
    const FlaggedRun run =
        on(rtx4090,
           {{"parameters", {"host"}}, {"batch", {std::to_string(batch)}}, {"chunk-loss", {"0"}}});
    const PlannedRun of = planned(run);
    const RehearsedStep step =
        rehearse_step(describe_step(of.config), of.plans, rtx4090, {.trace = true});
    const int64_t limit = link_limit_tokens(of, rtx4090, step).value();
    EXPECT_EQ(link_in_words(of, rtx4090).empty(), limit <= batch * of.config.seq) << batch;
    return limit;
  };
  EXPECT_GT(with(2), 2 * 128);
  EXPECT_GT(with(4), 4 * 128);
  EXPECT_LT(with(32), 32 * 128);
}

TEST(HomeReport, SaysSoInWordsWhereTheLinkIsTheLimit) {
  const auto words_of = [](const Machine& machine) {
    const PlannedRun run = planned(on(machine, {{"parameters", {"host"}}}));
    return link_in_words(run, machine);
  };
  EXPECT_TRUE(words_of(rtx4090).starts_with("the link is the limit below ")) << words_of(rtx4090);
  EXPECT_TRUE(words_of(rtx4090).ends_with(" tokens a micro-batch"));
  Machine fast = rtx4090;
  fast.to_host_bytes_per_second = fast.from_host_bytes_per_second = 1e15;
  EXPECT_EQ(words_of(fast), "");
  const Machine cpu = nominal_machine({.architecture = CpuArchitecture{.threads = 2}});
  EXPECT_EQ(words_of(cpu), "") << "a cpu's own processors copy";
  EXPECT_EQ(link_in_words(planned(on(rtx4090, {})), rtx4090), "");
}

TEST(HomeReport, IsASentenceOfTheExplanation) {
  const json report = report_of(on(rtx4090, {{"parameters", {"host"}}}));
  const auto has = [&](const char* begin) {
    return std::ranges::any_of(report["explanation"], [&](const json& sentence) {
      return sentence.get<std::string>().starts_with(begin);
    });
  };
  EXPECT_TRUE(has("Parameters and gradients of 6 of 6 units live on the host; ")) << report;
  EXPECT_TRUE(has("The link is the limit below ")) << report;
}

}  // namespace
}  // namespace spool::testing
