#pragma once

// Rehearses a training step of any model before it runs, to make a policy's plan, the layout of the
// step's memory, and its timeline.

#include <vector>

#include "spool/models/steps/sharding/kept_model.h"
#include "spool/models/steps/step.h"
#include "spool/planner/policy.h"
#include "spool/planner/rehearsal.h"
#include "spool/planner/search/searched_step.h"

namespace spool {

// Three micro-batches cover every case: first, middle, last.
constexpr int64_t distinct_micro_batches = 3;
// The same step with at most `max` micro-batches on each rank.
StepDescription with_micro_batches(StepDescription, int64_t max);

// The policy's plan for the tape of a micro-batch; the machine's rates decide when offloaded values
// are released and fetched.
Plan plan_step(const StepDescription&, const Policy&, const Machine&);

// The elements of a bucket of state (Plan::bucket_elements) of a plan with parameters on the host:
// the most with which the update takes no more memory than forward and backward, or the fewest.
int64_t fitting_buckets(const StepDescription&, const Plan&, const Machine&);

// Fingerprints of that tape, for plan files; see autograd/fingerprint.h.
std::vector<uint64_t> step_fingerprints(const StepDescription&);

// Rehearses a step on the machine.  The memory includes the model's and the optimizer's; the
// seconds are the step's alone.  The model is kept there, if there is where.
RehearsedStep rehearse_step(const StepDescription&, const StepPlans&, const Machine&,
                            const RehearsalOptions& = {}, KeptModels* = nullptr);

// Foretells the peaks and the time of a whole step.  Micro-batches beyond the distinct ones repeat
// the middle one.  The report can be asked for what is live at the peak.
Report foretell_step(const StepDescription&, const StepPlans&, const Machine&,
                     const RehearsalOptions& = {}, KeptModels* = nullptr);

// The smallest peak of a run's other work in bytes of the device; see SearchedStep::other_peak.
using OtherPeak = std::function<size_t(const Plan&)>;
// The step for a search.  Of buckets in flight, 0: as each plan says.
SearchedStep searched_step(const StepDescription&, const Machine&, OtherPeak = {},
                           int buckets_in_flight = 0);

// The lifetime of each allocation in a step of at most `distinct_micro_batches` micro-batches.
Lifetimes record_step(const StepDescription&, const StepPlans&, const Machine&);

// The program and survey of the only micro-batch of a step, under a plan that offloads nothing.
RehearsedTape rehearse_tape(const StepDescription&, const Plan&, const Machine&,
                            KeptModels* = nullptr);

// The layout of a step's memory; nothing if best-fit allocation needs no more.
std::optional<Layout> lay_out_step(const StepDescription&, StepPlans, const Machine&);

}  // namespace spool
