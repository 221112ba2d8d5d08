#include "spool/models/cli/tables/plan_table.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <map>

#include "spool/models/calibration/work_kernels.h"
#include "spool/models/cli/tables/home_rows.h"
#include "spool/models/cli/tables/plan_rows.h"
#include "spool/models/cli/tables/rank_rows.h"
#include "spool/models/cli/terminal/style.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/attention_methods.h"
#include "spool/models/training/calibration_samples.h"
#include "spool/models/training/plan_report.h"
#include "spool/models/training/plan_words.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

constexpr std::string_view foretold_peak = "foretold peak", foretold_time = "foretold step time";

std::string head(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  const TrainingConfig& t = o.training;
  const ModelShape m = t.model.shape();
  return fmt::format(
      "{}: {} layers, {} heads, {} channels, context {}, vocabulary {}; {:.2f} M parameters\n"
      "{} on {}: {} rows of {} tokens{}\n",
      o.model, m.layers, m.heads.query, m.channels, m.context, m.vocabulary,
      static_cast<double>(t.model.parameter_count()) / 1e6, name(t.dtype),
      run.exchange ? ranks_in_words(*run.exchange, machine.name) : machine.name, t.batch, t.seq,
      t.accumulate > 1 ? fmt::format(", {} micro-batches a step", t.accumulate) : "");
}

// What the flags say about each layer.
std::string policy_lines(const RunOptions& o) {
  const Policy& p = o.policy;
  std::string lines;
  if (const std::string list = recompute_list(p); list != "none") {
    lines += fmt::format("  recompute {}\n", list);
  }
  if (p.offload != Offloading::none) {
    const bool to_disk = p.target == OffloadTarget::disk;
    lines += fmt::format("  offload {} to {}\n", name(p.offload),
                         to_disk ? "a file in " + o.spill_directory : "the host");
  }
  return lines;
}

int size_of(const LayerGroup& group) {
  int layers = 0;
  for (const auto& [first, last] : group.layers) layers += last - first + 1;
  return layers;
}

// Keeps the largest groups, and merges the others into one that only lists their layers.
std::vector<LayerGroup> largest(std::vector<LayerGroup> groups, size_t max) {
  if (groups.size() <= max) return groups;
  std::vector<int> sizes;
  for (const LayerGroup& group : groups) sizes.push_back(size_of(group));
  std::ranges::sort(sizes, std::greater());
  const int min = sizes[max - 1];
  std::vector<LayerGroup> shown;
  LayerGroup rest;
  size_t others = 0;
  for (LayerGroup& group : groups) {
    if (shown.size() + 1 < max && size_of(group) >= std::max(min, 1)) {
      shown.push_back(std::move(group));
    } else {
      rest.layers.insert(rest.layers.end(), group.layers.begin(), group.layers.end());
      ++others;
    }
  }
  std::ranges::sort(rest.layers);
  rest.treatment = fmt::format("{} other ways", others);
  shown.push_back(std::move(rest));
  return shown;
}

// What the plan does to each layer.
std::string layer_lines(const PlannedRun& run) {
  constexpr size_t max_lines = 7;
  std::string lines;
  for (const LayerGroup& group : largest(explain(run), max_lines)) {
    lines += fmt::format("  {}: {}\n", layers_of(group), group.treatment);
  }
  return lines;
}

// Empty if evaluations have all rows at once.
std::string evaluation_words(const ChunkRows& rows) {
  if (rows == ChunkRows{}) return "";
  const std::string loss = fmt::format("the loss in chunks of {} rows", rows.loss);
  const std::string mlps = fmt::format("MLPs in chunks of {} rows", rows.mlp);
  return "evaluations have " + (rows.mlp == 0    ? loss
                                : rows.loss == 0 ? mlps
                                                 : loss + " and " + mlps);
}

// What is kept for backward, and where.
std::string placement_lines(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  std::string lines;
  const auto say = [&](const std::string& what) { lines += "  " + what + "\n"; };
  for (const std::string& line : rank_lines(o, run)) say(line);
  const int64_t loss_rows = run.chunks.loss_rows;
  if (loss_rows) say(fmt::format("the loss in chunks of {} rows", loss_rows));
  if (const int64_t rows = run.chunks.mlp_rows) say(fmt::format("MLPs in chunks of {} rows", rows));
  if (!o.plan.empty()) say("as the plan " + o.plan + " says");
  const bool is_given = o.given.contains("recompute") || o.given.contains("offload");
  lines += is_given && o.plan.empty() ? policy_lines(o) : layer_lines(run);
  for (const std::string& line : home_lines(run, machine)) say(line);
  const Plan& plan = run.plans.step;
  if (plan.optimizer_state != OptimizerState::device) {
    const size_t share = plan.state_bytes_on_device;
    const std::string on_device = share ? ", " + format_bytes(share) + " of it on the device" : "";
    say(fmt::format("optimizer state {}{}", name(plan.optimizer_state), on_device));
  }
  const std::string words = evaluation_words(run.config.evaluation.value_or(ChunkRows{}));
  return words.empty() ? lines : lines + "  " + words + "\n";
}

// The free memory is a limit only if what is set by hand does not fit into it.
std::string limit_rows(const PlannedRun& run) {
  if (run.has_budget) return row("budget", format_bytes(run.budget));
  const bool has_limit = run.limit < MetaStream::unlimited;
  return row("budget", "none", has_limit ? "" : "no memory is given for the machine") +
         (run.is_chosen ? row("free memory", format_bytes(run.limit)) : "");
}

std::string memory_rows(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  const Report& foretold = run.foretold;
  std::string rows;
  size_t counted = 0;
  for (const Purpose p : enumerators<Purpose>()) {
    const size_t bytes = foretold.memory.at_peak_by[p];
    const std::string note = host_note(run, p);
    if (p == Purpose::frozen && bytes == 0 && note.empty()) continue;
    counted += bytes;
    rows +=
        p == Purpose::exchange ? exchange_row(run, bytes) : row(name(p), format_bytes(bytes), note);
  }
  const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture);
  const size_t page = cpu ? 1 : cuda_page_bytes, besides = (page - run.budget % page) % page;
  return rows + row("between blocks", format_bytes(foretold.memory.peak - counted)) +
         row(foretold_peak, format_bytes(foretold.memory.peak), peak_note(run)) +
         row("  in bytes", std::to_string(foretold.memory.peak)) +
         (cpu ? row("  with --threads", std::to_string(cpu->threads)) : "") + sum_row(cpu, run) +
         limit_rows(run) +
         (run.program_bytes
              ? row("the program itself", format_bytes(run.program_bytes), "besides, about")
              : "") +
         (besides ? row("to whole pages", format_bytes(besides), "besides, of 2 MiB") : "") +
         (o.exchange_bytes ? row("NCCL", format_bytes(o.exchange_bytes), "besides, measured")
                           : "") +
         (foretold.host.peak ? row("host memory", format_bytes(foretold.host.peak)) : "") +
         (foretold.disk.peak ? row("disk", format_bytes(foretold.disk.peak)) : "");
}

double over_keep_all(const PlannedSteps& run) {
  return run.foretold.seconds / run.search->keep_all_seconds - 1;
}

// What a plan is compared with: keeping everything that may be chosen.
std::string keeping_all(const RunOptions& o, const PlannedRun& run) {
  std::string words = "keeping all";
  const bool has_chunks = run.chunks.mlp_rows > 0 || (o.resume && !run.chunks.nodes.empty());
  if (has_chunks) words += " in these chunks";
  const OptimizerState state = o.policy.optimizer_state;
  if (state != OptimizerState::device) words += fmt::format(" with the state {}", name(state));
  return words;
}

// Empty if the plan does not fit: a bound is for plans that do.
std::string bound_row(const PlannedRun& run) {
  const double bound = run.search->lower_bound;
  if (run.refusal) return "";
  if (bound <= 0) return row("  lower bound", "none", "how fast other plans are is not known");
  return row("  lower bound", format_seconds(bound),
             fmt::format("at most {} from the fastest possible", percent(gap(run))));
}

// Nothing for a machine that is not measured.
std::string kernel_row(const Machine& machine, const PlannedRun& run) {
  if (!machine.kernels || run.refusal) return "";
  const KernelCount kernels = count_kernels(run, machine);
  if (kernels.unmeasured == 0) return "";
  return row("  kernels", fmt::format("{} of {}", kernels.unmeasured, kernels.all),
             "are not measured, but foretold by rates, scaled as what was");
}

// What chunks cost that were not chosen by this clock and for these threads, and for which threads
// they hold; empty if there is nothing to say.
std::string chunk_rows_of(const PlannedRun& run) {
  constexpr int expected = 8;
  if (run.refusal) return "";
  const int threads = run.chunks_hold_for_threads;
  const double slowed = run.slowed_by_chunks;
  std::string rows;
  if (threads != 0 && threads != expected) {
    rows += row("  chunks", chunk_threads(threads), "runs with others may have other losses");
  }
  if (slowed > 0) {
    rows += row("  chosen freely", format_seconds((1 - slowed) * run.foretold.seconds),
                fmt::format("{} faster, with losses that depend on measured times and threads",
                            percent(slowed)));
  }
  return rows;
}

std::string time_rows(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  const SearchResult& s = *run.search;
  return row(foretold_time, format_seconds(run.foretold.seconds),
             fmt::format("+{} over {}: {} in {}", percent(std::max(over_keep_all(run), 0.0)),
                         keeping_all(o, run), format_seconds(s.keep_all_seconds),
                         format_bytes(s.keep_all_peak))) +
         bound_row(run) + chunk_rows_of(run) + kernel_row(machine, run) +
         row("  planned in", format_seconds(s.plan_seconds),
             fmt::format("{} rehearsals", s.rehearsals));
}

std::string split_beside(const StepSplit& split) {
  const std::string name = fmt::format("{} x {}", split.batch, split.accumulate);
  if (!split.fits) return name + " does not fit";
  return fmt::format("{} takes {}{}", name, split.is_searched ? "" : "at least ",
                     format_seconds(split.seconds));
}

// How the rows of a step are split, if that was chosen.
std::string split_rows(const PlannedRun& run) {
  if (!run.split || !run.split->fits()) return "";
  const SplitChoice& choice = *run.split;
  const StepSplit& own = choice.all[choice.chosen];
  std::string note =
      fmt::format("rows x micro-batches: {} by the nominal clock", format_seconds(own.seconds));
  for (const StepSplit& other : choice.neighbours()) note += "; " + split_beside(other);
  constexpr int threads = 8;  // of the nominal cpu
  if (choice.threads > 0 && choice.threads != threads) {
    note += fmt::format("; chosen for {} threads", choice.threads);
  }
  return row("split of a step", fmt::format("{} x {}", own.batch, own.accumulate), note);
}

// What computes attention, and why it is not cuDNN.
std::string attention_rows(const PlannedRun& run, const Machine& machine) {
  const auto* architecture = std::get_if<CudaArchitecture>(&machine.architecture);
  if (!architecture) {
    constexpr const char* note = "--nondeterministic changes nothing on a cpu";
    return run.config.nondeterministic ? row("attention", "the cpu's", note) : "";
  }
  const auto [forward, backward, parts, others] = attention_methods(run.config, *architecture);
  const bool by_cudnn = backward.method == AttentionMethod::cudnn;
  std::string note = backward.why();
  if (by_cudnn && parts > 1) note = fmt::format("backward in {} parts", parts);
  if (others) {
    note += fmt::format("{}in {} layer{} by Spool's kernels", note.empty() ? "backward " : ", ",
                        others, others == 1 ? "" : "s");
  }
  if (by_cudnn && run.config.nondeterministic) {
    note += note.empty() ? "nondeterministic" : ", nondeterministic";
  }
  if (forward.method == backward.method) return row("attention", name(forward.method), note);
  return row("attention", name(forward.method), forward.why()) +
         row("  backward", name(backward.method), note);
}

std::string layers_in_chunks(const PlannedSteps& run) {
  const size_t count = nodes_in_chunks(run.plans.step).size();
  return count ? fmt::format("{} layers", count) : "-";
}

}  // namespace

std::string plan_table(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  std::string table = head(o, machine, run) + placement_lines(o, machine, run) +
                      attention_rows(run, machine) + memory_rows(o, machine, run) +
                      time_rows(o, machine, run) + exchange_rows(run) + sharding_rows(run) +
                      split_rows(run);
  if (o.policy.offload != Offloading::none && !offloads(run.plans.step)) {
    table +=
        "  nothing is offloaded: no value is at least 1 MiB with time to copy it out and back\n";
  }
  table.pop_back();
  return table;
}

std::string emphasised(std::string_view table, int descriptor) {
  std::string all;
  for (size_t at = 0; at < table.size();) {
    const size_t end = std::min(table.find('\n', at), table.size());
    const std::string_view line = table.substr(at, end - at),
                           words = line.substr(std::min<size_t>(2, line.size()));
    const bool is_main = words.starts_with(foretold_peak) || words.starts_with(foretold_time);
    all += is_main ? styled(line, Style::bold, descriptor) : std::string(line);
    if (end < table.size()) all += '\n';
    at = end + 1;
  }
  return all;
}

std::string kernel_times_table(const TrainingConfig& config, const StepPlans& plans,
                               const Machine& machine) {
  struct Row {
    std::string name;
    int64_t launches = 0;
    double seconds = 0;
  };
  std::map<std::string, Row> by_name;
  Row all{.name = "all"};
  const auto step = rehearse_step(describe_step(config), plans, machine, {.trace = true});
  for (const TraceSpan& span : kernel_spans(step.trace)) {
    for (Row* r : {&by_name[span.name], &all}) {
      ++r->launches;
      r->seconds += span.seconds();
    }
  }
  std::vector<Row> rows;
  for (auto& [name, r] : by_name) rows.push_back({name, r.launches, r.seconds});
  std::ranges::stable_sort(rows, std::greater(), &Row::seconds);
  rows.push_back(all);
  std::string table = fmt::format("  {:<24} {:>8} {:>10}\n", "kernel", "launches", "ms");
  for (const Row& r : rows) {
    table += fmt::format("  {:<24} {:>8} {:>10.3f}\n", r.name, r.launches, 1e3 * r.seconds);
  }
  table.pop_back();
  return table;
}

std::string frontier_table(const std::vector<PlannedSteps>& frontier) {
  constexpr const char* columns = "  {:>8}  {:>8}  {:>9}  {:>7}  {:>7}  {:>10}  {:>9}\n";
  std::string table = fmt::format(columns, "budget", "peak", "step time", "slower", "gap",
                                  "loss chunk", "in chunks");
  for (const PlannedSteps& run : frontier) {
    table += fmt::format(
        columns, format_bytes(run.limit), format_bytes(run.foretold.memory.peak),
        format_seconds(run.foretold.seconds), percent(std::max(over_keep_all(run), 0.0)),
        run.search->lower_bound > 0 ? percent(gap(run)) : "-",
        run.chunks.loss_rows ? std::to_string(run.chunks.loss_rows) : "all", layers_in_chunks(run));
  }
  table.pop_back();
  return table;
}

}  // namespace spool
