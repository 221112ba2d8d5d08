#include "spool/models/cli/tables/plan_facts.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "spool/models/cli/terminal/text.h"
#include "spool/planner/plan_file.h"
#include "spool/planner/report/home_words.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

void add_what_it_was_made_for(Facts& facts, const PlannedFor& made_for) {
  facts.emplace_back("machine", made_for.machine);
  facts.emplace_back("budget", fmt::format("{} bytes", made_for.budget));
  facts.emplace_back("foretold peak", fmt::format("{} bytes", made_for.peak));
  if (const int64_t rows = made_for.loss_rows) {
    facts.emplace_back("loss", fmt::format("in chunks of {} rows", rows));
  }
  if (const int64_t rows = made_for.mlp_rows) {
    facts.emplace_back("MLPs", fmt::format("in chunks of {} rows", rows));
  }
}

std::string state_in_words(const Plan& plan) {
  std::string words = name(plan.optimizer_state);
  if (const size_t bytes = plan.state_bytes_on_device) {
    words += fmt::format(", {} of it on the device", format_bytes(bytes));
  }
  if (const int64_t n = plan.bucket_elements) {
    words += fmt::format(", in buckets of {} elements", n);
  }
  return words;
}

}  // namespace

Facts plan_facts(const std::filesystem::path& path) {
  const StoredPlan stored = load_plan(path);
  const Plan& plan = stored.plan;
  Facts facts;
  if (stored.made_for) add_what_it_was_made_for(facts, *stored.made_for);
  const auto values = [&](Placement p) {
    return count_of(static_cast<size_t>(std::ranges::count(plan.placement, p)), "value");
  };
  facts.emplace_back("recomputed", values(Placement::recompute));
  facts.emplace_back("offloaded", values(Placement::offload));
  const auto in_chunks =
      std::ranges::count_if(plan.regions, [](const Region& r) { return r.chunks > 1; });
  facts.emplace_back("regions",
                     fmt::format("{}, {} of them in chunks", plan.regions.size(), in_chunks));
  if (const std::string homes = homes_in_words(plan); !homes.empty()) {
    facts.emplace_back("units", homes);
  }
  facts.emplace_back("optimizer state", state_in_words(plan));
  if (const int n = plan.buckets_in_flight) {
    facts.emplace_back("buckets in flight", std::to_string(n));
  }
  if (!plan.fingerprints.empty()) {
    facts.emplace_back("tape", fmt::format("{} nodes, fingerprint {:016x}",
                                           plan.fingerprints.size(), plan.fingerprints.back()));
  }
  return facts;
}

}  // namespace spool
