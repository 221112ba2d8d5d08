// The settings of where and how a run executes, and of its evaluations, whose values run.json has
// as JSON.

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "spool/models/training/settings/home_settings.h"
#include "spool/models/training/settings/setting_checks.h"

namespace spool {
namespace {

// These settings are given in other words than they are kept in, or set several members.
using Words = SettingAccess<std::string>;

std::string recomputed_text(const RunOptions& o) { return recompute_list(o.policy); }
void read_recomputed(RunOptions& o, const std::string& list) { set_recompute(o.policy, list); }

// Bytes, given as an amount of memory; no text: the default.
template <class Bytes>
Words amount(Bytes RunOptions::*bytes) {
  return {[=](const RunOptions& o) {
            const std::optional<size_t> number = o.*bytes;
            return o.*bytes == Bytes() ? "" : std::to_string(*number);
          },
          [=](RunOptions& o, const std::string& text) {
            o.*bytes = text.empty() ? Bytes() : text == "0" ? 0 : parse_bytes(text);
          }};
}

constexpr std::string_view disk_prefix = "disk:";

std::string offload_target_text(const RunOptions& o) {
  return o.policy.target == OffloadTarget::host ? "host" : sentence(disk_prefix, o.spill_directory);
}
void read_offload_target(RunOptions& o, const std::string& text) {
  const bool is_disk = text.starts_with(disk_prefix) && text.size() > disk_prefix.size();
  check_setting(is_disk || text == "host", {"offload-to"}, "{offload-to} '", text,
                "' is neither host nor disk:DIRECTORY");
  o.policy.target = is_disk ? OffloadTarget::disk : OffloadTarget::host;
  o.spill_directory = is_disk ? text.substr(disk_prefix.size()) : "";
}

std::string final_evaluation_text(const RunOptions& o) {
  if (!o.final_eval_batches) return "all";
  return *o.final_eval_batches == 0 ? "none" : std::to_string(*o.final_eval_batches);
}
void read_final_evaluation(RunOptions& o, const std::string& text) {
  o.final_eval_batches.reset();
  if (text == "all") return;
  int64_t batches = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, batches);
  const bool is_count =
      error == std::errc() && after == end && batches > 0 && batches <= largest_count;
  check_setting(is_count || text == "none", {"final-eval"},
                "the evaluation at the end reads a number of batches, at most ", largest_count,
                ", all or none, not '", text, "'");
  o.final_eval_batches = is_count ? batches : 0;
}

}  // namespace

namespace settings {

const Settings policy_table{
    {"tokens-per-step", &RunOptions::tokens_per_step,
     "Tokens of a step, a multiple of {seq}, instead of {batch} and {accumulate}: the split into "
     "micro-batches is the one with the fastest plan within {memory}, or within all memory of the "
     "device, and part of the run",
     at_least(1), execution, in_help},
    {"recompute", Words{recomputed_text, read_recomputed},
     "Values to recompute in backward rather than keep: none, or a comma-separated list of "
     "norms, gelu (every activation), attention, block (everything in a block except its "
     "input) and gathers (parameters that ranks store in parts); by default, and without "
     "{offload}, "
     "what {memory} needs",
     any_value, execution, in_help},
    {"offload", &Policy::offload,
     "Values to copy off the device until backward needs them: none, the default; residual (the "
     "blocks' inputs); or all (every saved value); only values of at least 1 MiB with time for "
     "both copies are offloaded",
     one_of<Offloading>(), execution, in_help},
    {"offload-to", Words{offload_target_text, read_offload_target},
     "Destination of offloaded values: host, or disk:DIRECTORY, an unnamed file there that "
     "disappears with the process",
     any_value, execution, as_value},
    {"host-memory", amount(&RunOptions::host_memory),
     "Memory of a GPU's host for what leaves the GPU because {memory} needs it, and for what lives "
     "there by {parameters}; 0: none; by default half of the host's, or what {parameters} needs",
     memory_amount_or_none(), execution, in_help},
    {"optimizer-state", &Policy::optimizer_state,
     "Place of AdamW's state: device; streamed (on the host, moved through the device in each "
     "step); or cpu (on the host, which also updates the parameters); by default on the device, "
     "or on a GPU as much of it as {memory} allows",
     one_of<OptimizerState>(), execution, in_help},
    {"parameters", Words{parameters_text, read_parameters},
     "Place of parameters, with their gradients: device; host, from where each block's are copied "
     "to the device while it runs; or an amount of memory, such as 6GiB, of which as many blocks "
     "as fit stay on the device; the state of those on the host is {optimizer-state} streamed",
     any_value, execution, as_value},
    {"update", &Policy::update,
     "When parameters are updated: at the end of a step; or in its backward, each as soon as its "
     "gradient is known, which then needs no memory; that needs {clip} 0, and a step whose "
     "gradients are not finite ends the run",
     one_of<UpdateTime>(), execution, as_value},
    {"plan", &RunOptions::plan,
     "File with a plan of what is kept, recomputed and offloaded, as {save-plan} writes it; "
     "replaces {recompute}, {offload}, {optimizer-state}, {parameters} and {update}, and has the "
     "chunks it was made for",
     any_value, execution, in_help},
    {"save-plan", &RunOptions::save_plan, "File to write the plan of this run to",
     file_of("a plan"), execution, in_help},
};

const Settings machine_table{
    {"memory", amount(&RunOptions::memory),
     "Memory budget of the device, such as 2GiB, which the run never exceeds.  What is "
     "recomputed, and what runs in chunks, are chosen for it, unless {recompute}, {offload}, "
     "{chunk-loss}, {chunk-mlp} or {plan} say so.  By default everything is kept, or as much as "
     "fits into the device's free memory",
     memory_amount(), execution, in_help},
    {"device", &RunOptions::device_name,
     "Device: cpu, cuda, or cuda:N for GPU number N, from 0; by default the environment's "
     "SPOOL_DEVICE, else cuda if there is a GPU, else cpu",
     any_value, execution, in_help},
    {"threads", &RunOptions::threads,
     "Number of CPU threads; 0: one for each core that this process may use",
     threads_of_this_machine(), execution, as_value},
};

const Settings output_table{
    {"graph", &RunOptions::graph,
     "Enqueue every kernel of every step; by default a step on a GPU is captured as graphs, "
     "which are replayed",
     any_value, execution, in_help},
    {"out", &RunOptions::out, "Directory of the run and its checkpoints; by default runs/MODEL",
     file_of("a run"), execution, in_help},
    {"resume", &RunOptions::resume,
     "Continue from the latest checkpoint in {out} ({resume} DIR is {resume} {out} DIR), with "
     "the settings of that run, except those of where and how it executes ({device}, {memory}, "
     "{recompute}, {offload}, ...); {steps} may become more, {data} and {val-data} name data "
     "that moved, and {eval-every}, {eval-batches}, {keep-best} and {patience} be others",
     any_value, execution, in_help},
    {"dry-run", &RunOptions::dry_run,
     "Print what the run would take, and write nothing but {save-plan}, {report} and {trace}",
     any_value, execution, in_help},
    {"log", &RunOptions::log,
     "File to log to, one JSON object per line; -: standard output, between the rest",
     standard_output_as("/dev/stdout"), execution, in_help},
    {"report", &RunOptions::report,
     "File to write a page to that draws the plan, other budgets, losses and speed: before the "
     "first step, at checkpoints and at the end; HTML that needs no network",
     file_of("a page"), execution, in_help},
    {"trace", &RunOptions::trace,
     "File for the timeline of one step, foretold and measured, to open in "
     "https://ui.perfetto.dev",
     file_of("a timeline"), execution, in_help},
};

const Settings checkpoint_table{
    {"checkpoint-every", &RunOptions::checkpoint_every,
     "Steps between checkpoints; 0: only at the end", at_least(0), execution, as_value},
    {"checkpoint-minutes", &RunOptions::checkpoint_minutes,
     "Minutes between checkpoints, whichever step that is; 0: by {checkpoint-every} alone",
     finite_from_zero("the minutes between checkpoints must be a finite number from 0 on"),
     execution, as_value},
    {"keep-checkpoints", &RunOptions::keep_checkpoints,
     "Number of checkpoints to keep; older ones are removed", at_least(1, largest_count), execution,
     as_value},
};

const Settings evaluation_table{
    {"eval-every",
     &RunOptions::eval_every,
     "Steps between evaluations; 0: only at the end",
     {at_least(0), not_negative("the steps between evaluations")},
     evaluation,
     as_value},
    {"eval-batches",
     &RunOptions::eval_batches,
     "Batches of validation data for each of these evaluations, evenly spread",
     {at_least(1, largest_count), not_negative("the batches of an evaluation")},
     evaluation,
     as_value},
    {"keep-best", &RunOptions::keep_best,
     "Also keep the checkpoint of the smallest loss of these evaluations, as best in {out}",
     any_value, evaluation, in_help},
    {"patience",
     &RunOptions::patience,
     "End the run after so many of these evaluations in a row without a smaller loss; 0: train "
     "all {steps}",
     {at_least(0), not_negative("the evaluations that a run goes on without a better one")},
     evaluation,
     as_value},
    {"final-eval", Words{final_evaluation_text, read_final_evaluation},
     "Batches of validation data for the evaluation at the end, after the model is saved: a "
     "number, all, the default, or none",
     any_value, execution, in_help},
    {"sample-every", &RunOptions::sample_every, "Steps between text samples; 0: only at the end",
     at_least(0), execution, as_value},
};

const Settings sample_table{
    {"sample", &RunOptions::sample, "Write no text samples, and foretell none", any_value,
     execution, in_help},
};

}  // namespace settings
}  // namespace spool
