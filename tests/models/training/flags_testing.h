#pragma once

// Runs of small models that are planned from flags, as `spool plan` plans them for a machine that
// is not here, and flags drawn at random that set by hand what a search may choose.

#include <memory>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"
#include "spool/runtime/random.h"

namespace spool::testing {

using Texts = std::vector<std::string>;

struct FlaggedRun {
  GivenTexts flags = {};
  Machine machine = {};
  size_t host_bytes = 0;
};

// The run with further flags.
FlaggedRun with_flags(FlaggedRun, const GivenTexts&);
// For an error.
std::string in_words(const FlaggedRun&);
std::unique_ptr<RunPlanner> planner_of(const FlaggedRun&);

// A GPT-2 or a Llama of one to four layers on a machine by its data sheet, some with a host.
FlaggedRun random_run(Random&);
// All flags of a policy, drawn from those that the machine's link allows.
GivenTexts random_policy(Random&, const FlaggedRun&);
// Some of the flags, each with probability a half.
GivenTexts some_of(Random&, const GivenTexts&);

// Lists of --recompute.
Texts recompute_lists();
// 0, and all halves of a number of rows down to one.
Texts halves_of(int64_t rows);

// The costs of what is set by hand, or of a search in which some is.
struct Costs {
  size_t peak = 0, host_bytes = 0;
  double seconds = 0;
};
Costs costs_of(const PlannedRun&);

// Expects that no plan of these costs helps the run: the search finds a budget as small, and a plan
// within the bytes that is at most `slower` times as slow and has a bound.
void expect_no_help(RunPlanner& search, const FlaggedRun&, const Costs&, double slower);

}  // namespace spool::testing
