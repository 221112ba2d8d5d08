#pragma once

// Reports what was planned, as JSON for programs and for the page that draws it.  A plan that fits:
//
//   {"format": "spool-plan-report", "format_version": 2,
//    "model": "gpt2-124m", "batch": 4, "seq": 1024, "accumulate": 1, "dtype": "bf16",
//    "parameters": 124475904, "machine": "h200",
//    "splits": [{"batch": 4, "accumulate": 8,                every split of the tokens of a step,
//                "fits": true, "searched": true,             if it was chosen, else null; the time
//                "step_ms": ...}, ...],                      is by the nominal clock, of keeping
//                                                            all if it was not searched, or null
//    "budget_is": "set",                                     or "free memory", which limits a plan
//                                                            without a budget, or "none"
//    "budget_bytes": ...,                                    null: of unknown memory
//    "foretold_peak_bytes": ..., "foretold_step_ms": ...,
//    "peak_is_in": "step",                                   or "evaluation", or "sample"
//    "keep_all_peak_bytes": ..., "keep_all_step_ms": ...,    of keeping everything
//    "lower_bound_ms": ..., "gap": ...,                      foretold_step_ms / lower_bound_ms - 1
//    "plan_ms": ..., "rehearsals": ...,                      what the search took
//    "fingerprint": "00d1e9bbe4c2a7f1",                      of the step's tape
//    "loss_chunk": ..., "region_chunks": [8, ...],           rows (0: all); chunks of each region
//    "chunks_hold_for_threads": 8,                           of a cpu; 0: none, or not chosen
//    "slowed_by_chunks": 0.013,                              the part of the step's time that free
//                                                            chunks would save; 0: at most 0.01
//    "state_bytes_on_device": ..., "host_bytes": ..., "disk_bytes": ...,
//    "peak_bytes_by_purpose": {"parameters": ..., ...},
//    "host_bytes_by_purpose": {"optimizer": ..., ...},       at the peak of host_bytes; those that
//                                                            have some
//    "homes": {...},                                         parameters and gradients on the host
//                                                            (home_report.h); null: none
//    "ranks": 8, "ranks_of_machine": 8, "zero": 2,           of a run on ranks, with what a rank
//    "buckets_in_flight": 2, "bucket_bytes": ...,            sends in a step, by name
//    "exchange": {"sent_bytes": ..., "seconds": ..., "exposed_seconds": ..., "max_bytes": ...,
//                 "list": [{"name": "gradients", "count": 8, "bytes": ..., "ms": ...,
//                           "exposed_ms": ...}, ...]},
//    "peak_bytes_by_rank": [...],                            where ranks differ in it
//    "cuts": {...},                                          of ranks that share micro-batches: how
//                                                            each op is cut (cuts_report.h)
//    "sharding": {...},                                      if that was chosen (sharding_choice.h)
//    "attention": {"forward": {"method": ..., "why": ...}, ...},     null on a cpu
//    "layers": [{"ranges": [[0, 13]], "treatment": "recompute ln_1 gelu"}, ...],
//    "memory": {...},                                        below
//    "grid": {"rows": ["ln_1", ...], "layers": 12, "cells": [["keep", ...], ...]},
//    "lanes": [{"lane": "copy out", "name": "ln_1 of layer 3", "begin_ms": ..., "end_ms": ...,
//               "bytes": ...}, ...],                        the 2000 longest copies; those of
//                                                            "exchange" have "exposed_ms": [[begin,
//                                                            end], ...], which nothing hides
//    "lane_totals": [{"lane": "copy out", "copies": ..., "bytes": ..., "busy_ms": ...}, ...],
//    "explanation": ["...", ...],                            the plan in sentences
//    "frontier": [{"budget_bytes": ..., "foretold_peak_bytes": ..., "foretold_step_ms": ...,
//                  "lower_bound_ms": ..., "gap": ..., "loss_chunk": ...,
//                  "region_chunks": [...]}, ...],            if asked for
//    "policies": [{"name": "keep all", "peak_bytes": ..., "step_ms": ...}, ...]}     with it
//
// A plan whose copies are set by hand has no bound, and for some of the smallest budgets none is
// known: both are null, as in the frontier.  If no search was run, the bound, the costs of keeping
// everything and those of the search are null.
//
// "memory" is that of the device over one step, as foretold:
//
//   {"micro_batches_shown": 3,          of more: the first, one in the middle and the last
//    "step_peak_bytes": ...,            of the step; foretold_peak_bytes if peak_is_in says "step"
//    "categories": ["parameters", "gradients", "optimizer", "inputs", "exchange",
//                   "activations: embedding",
//                   "activations: attention", "activations: mlp", ..., "workspace",
//                   "copies in flight"],   those that occur, from the bottom to the top
//    "times_ms": [...],                 the bytes of an instant hold until the next one; of two
//                                       instants of equal times the first one's hold for no time
//    "bytes": [[...], ...],             a list for each category, with a number for each instant
//    "total_bytes": [...],              the sums of the categories
//    "peak_index": ...,                 of the instant of most bytes, which is exact
//    "holes_bytes": ...,                step_peak_bytes less the bytes of that instant
//    "phases": [{"name": "forward", "begin_ms": ..., "end_ms": ...}, ...],   "loss", "backward",
//                                       "optimizer"; for each micro-batch shown
//    "values": [{"name": "ln_2", "layer": 7, "category": 4, "bytes": ..., "begin": 17, "end": 90,
//                "until": "backward of mlp.c_fc"}, ...]}     live in the instants [begin, end); the
//                                       1500 largest in bytes x time of at least 1/2000 of the
//                                       peak; "layer" null: of no layer
//
// Activations are named as nodes are by planner/report/explanation.h.  Memory that a copy to the
// host or back holds is "copies in flight": a value from when it is offloaded or fetched.  Values
// of purpose "activations" are in the categories "activations: ..." and "copies in flight"; each
// other purpose is a category.  A cell of the grid is what becomes of a layer's value that backward
// reads: "keep", "recompute", "host", "disk" or "chunked"; "": backward reads none.
//
// If no plan fits, the members from "format" to "budget_bytes" and
//
//   {"error": "the smallest plan of this run needs ...",
//    "minimum_budget_bytes": ..., "binding_op": "the backward of linear (node 37)"}

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "spool/models/training/planned_run.h"

namespace spool {

// The report of a run, whether a search chose its plan or not; the error if it has a refusal.
// `model`: the model's name in the settings.
nlohmann::json plan_report(const PlannedRun&, const Machine&, const std::string& model,
                           const Frontier& = {});

// Throws if the file exists and is not a report, or cannot be written.
void check_report_file(const std::filesystem::path&);
void write_report(const std::filesystem::path&, const nlohmann::json&);
// The report as text, one line per member.
std::string report_text(const nlohmann::json&);

// The seconds above the lower bound, as a fraction of it.
double gap(const PlannedSteps&);

}  // namespace spool
