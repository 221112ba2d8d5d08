#include "spool/models/training/home_report.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/planner/report/home_words.h"
#include "spool/planner/report/link_limit.h"

namespace spool {
namespace {

bool has_link(const PlannedRun& run, const Machine& machine) {
  const bool is_cpu = std::holds_alternative<CpuArchitecture>(machine.architecture);
  return uses_homes(run.plans.step) && !is_cpu;
}

}  // namespace

std::optional<int64_t> link_limit_tokens(const PlannedRun& run, const Machine& machine,
                                         const RehearsedStep& step) {
  if (!has_link(run, machine)) return {};
  const auto tokens = static_cast<double>(run.config.batch * run.config.seq);
  const double limit = std::ceil(growth_that_hides_homes(step.trace) * tokens);
  constexpr double most = 1e15;  // as good as any number
  if (limit > most) return {};
  return static_cast<int64_t>(limit);
}

std::string link_in_words(const PlannedRun& run, const Machine& machine,
                          const RehearsedStep& step) {
  if (!has_link(run, machine)) return "";
  const std::optional<int64_t> limit = link_limit_tokens(run, machine, step);
  if (!limit) return "the link is the limit for any number of tokens a micro-batch";
  if (*limit <= run.config.batch * run.config.seq) return "";
  return fmt::format("the link is the limit below {} tokens a micro-batch", *limit);
}

std::string link_in_words(const PlannedRun& run, const Machine& machine) {
  if (!has_link(run, machine)) return "";
  const StepDescription few = with_micro_batches(describe_step(run.config), distinct_micro_batches);
  return link_in_words(run, machine, rehearse_step(few, run.plans, machine, {.trace = true}));
}

nlohmann::json homes_report(const PlannedRun& run, const Machine& machine,
                            const RehearsedStep& step) {
  const Plan& plan = run.plans.step;
  if (!uses_homes(plan)) return {};
  const HomeCounts counts = count_homes(plan);
  const std::optional<int64_t> limit = link_limit_tokens(run, machine, step);
  return {{"words", homes_in_words(plan)},
          {"units", counts.units},
          {"parameters_away", counts.parameters},
          {"gradients_away", counts.gradients},
          {"update", name(plan.update)},
          {"link_limit_tokens", limit ? nlohmann::json(*limit) : nlohmann::json()}};
}

}  // namespace spool
