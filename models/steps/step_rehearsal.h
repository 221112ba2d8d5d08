#pragma once

// Rehearses a training step of any model before it runs: for the plan that a policy makes, the
// layout of the step's memory, and its timeline.

#include <vector>

#include "spool/models/steps/step.h"
#include "spool/planner/policy.h"
#include "spool/planner/rehearsal.h"

namespace spool {

// Three micro-batches cover every case: first, middle, last.
constexpr int64_t distinct_micro_batches = 3;
// The same step, of at most so many micro-batches.
StepDescription with_micro_batches(StepDescription, int64_t max);

// The plan that the policy makes for the tape of a micro-batch; the machine's rates decide when
// offloaded values are released and fetched.
Plan plan_step(const StepDescription&, const Policy&, const Machine&);

// Fingerprints of that tape, for plans in files; see autograd/fingerprint.h.
std::vector<uint64_t> step_fingerprints(const StepDescription&);

// Rehearses a step on the machine; the memory is also its model's and its optimizer's, the seconds
// are the step's alone.
RehearsedStep rehearse_step(const StepDescription&, const StepPlans&, const Machine&,
                            const AskedOfRehearsal& = {});

// Foretells a whole step: peaks, and the time.  Micro-batches beyond the distinct ones repeat the
// middle one.  Of what can be asked for, the report has what is live at the peak.
Report foretell_step(const StepDescription&, const StepPlans&, const Machine&,
                     const AskedOfRehearsal& = {});

// Birth and death of each allocation of a step, of at most `distinct_micro_batches`.
Lifetimes record_step(const StepDescription&, const StepPlans&, const Machine&);

// The program of the only micro-batch of a step, and a survey of it, under this plan, which
// offloads nothing.
RehearsedTape rehearse_tape(const StepDescription&, const Plan&, const Machine&);

// The layout of a step's memory; nothing if best-fit allocation takes no more.
std::optional<Layout> lay_out_step(const StepDescription&, StepPlans, const Machine&);

}  // namespace spool
