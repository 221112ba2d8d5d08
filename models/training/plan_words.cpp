#include "spool/models/training/plan_words.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "spool/models/training/home_report.h"
#include "spool/models/training/plan_report.h"
#include "spool/planner/report/home_words.h"
#include "spool/planner/report/timeline.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

// The fraction of a step's time below which a difference does not count.
constexpr double negligible = 1e-4;

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string capitalised(std::string text) {
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

class Sentences {
 public:
  explicit Sentences(const PlanInWords& of) : of_(of), run_(of.run) {}

  std::vector<std::string> all() {
    say_what_it_takes();
    say_where_the_peak_is();
    say_what_layers_do();
    say_chunks_and_state();
    say_what_leaves();
    if (run_.exchange) all_.push_back(sentence_of(*run_.exchange, seconds()));
    say_what_it_saves();
    say_the_bound();
    say_what_chunks_cost();
    say_what_more_buys();
    return std::move(all_);
  }

 private:
  template <class... Values>
  void say(fmt::format_string<Values...> text, Values&&... values) {
    all_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }
  size_t peak() const { return run_.foretold.memory.peak; }
  double seconds() const { return run_.foretold.seconds; }
  // The trace and the memory show only some, if there are more micro-batches.
  bool has_all_micro_batches() const {
    return run_.config.step().micro_batches_of_rank() <= distinct_micro_batches;
  }

  std::string limit_in_words() const {
    if (run_.has_budget) return "the budget is " + format_bytes(run_.limit);
    const bool has_limit = run_.limit < MetaStream::unlimited;
    if (run_.search && has_limit) return "what is free is " + format_bytes(run_.limit);
    return "no budget is set";
  }

  void say_what_it_takes() {
    const TrainingConfig& c = run_.config;
    const std::string micro =
        c.accumulate > 1 ? fmt::format(" in {} micro-batches", c.accumulate) : "";
    say("A step of {} in {}, of {} rows of {} tokens{}, takes {} on {}, and the run at most {} of "
        "its memory; {}.",
        of_.model, name(c.dtype), c.rows_per_step(), c.seq, micro, format_seconds(seconds()),
        of_.machine.name, format_bytes(peak()), limit_in_words());
    if (run_.split && run_.split->fits()) {
      say("By the nominal clock no split of these rows into micro-batches that was searched has a "
          "faster plan: {} of {} were searched, the others are too slow or do not fit.",
          run_.split->searched(), run_.split->all.size());
    }
    if (!has_all_micro_batches()) {
      say("Of the {} micro-batches{} the first, one in the middle and the last are shown; the "
          "others "
          "repeat the one in the middle.",
          c.step().micro_batches_of_rank(), c.ranks > 1 ? " of a rank" : "");
    }
  }

  // The largest categories at the peak.
  std::string parts_at_peak() const {
    constexpr size_t max = 4;
    const StepMemory& memory = of_.memory;
    std::vector<std::pair<size_t, std::string>> parts;
    for (size_t c = 0; c < memory.categories.size(); ++c) {
      const size_t bytes = memory.bytes[c][memory.peak];
      if (bytes > 0) parts.emplace_back(bytes, memory.categories[c]);
    }
    std::ranges::stable_sort(parts, std::ranges::greater{}, &std::pair<size_t, std::string>::first);
    if (parts.size() > max) parts.resize(max);
    std::string text;
    for (const auto& [bytes, category] : parts) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", category, format_bytes(bytes));
    }
    return text;
  }

  void say_where_the_peak_is() {
    const StepMemory& memory = of_.memory;
    const size_t of_step = of_.step.report.memory.peak;
    const std::string place = memory.peak_is_in;
    if (of_.peak_is_in == "step") {
      const std::string when = has_all_micro_batches()
                                   ? fmt::format("comes {} into the step, ",
                                                 format_seconds(1e-3 * memory.times[memory.peak]))
                                   : "is ";
      say("The peak {}in the {}: {}.", when, place, parts_at_peak());
    } else {
      say("The peak is in {} {}; the step takes at most {}, in the {}: {}.",
          of_.peak_is_in == "evaluation" ? "an" : "a text", of_.peak_is_in, format_bytes(of_step),
          place, parts_at_peak());
    }
  }

  void say_what_layers_do() {
    constexpr size_t max = 3;
    const std::vector<LayerGroup>& groups = of_.layers;
    if (groups.size() == 1 && groups.front().treatment == "keep all") {
      say("Every layer keeps what its backward reads.");
      return;
    }
    // Naming one group more is no longer than saying that there is one more.
    const size_t told = groups.size() <= max + 1 ? groups.size() : max;
    for (size_t i = 0; i < told; ++i) {
      say("{}: {}.", capitalised(layers_of(groups[i])), groups[i].treatment);
    }
    if (groups.size() > told) {
      say("The rest is treated in {} other ways.", groups.size() - told);
    }
  }

  void say_chunks_and_state() {
    if (const int64_t rows = run_.chunks.loss_rows) {
      say("The loss is computed in chunks of {} rows, so that only their logits are live at a "
          "time.",
          rows);
    }
    const Plan& plan = run_.plans.step;
    if (const std::string homes = homes_sentence(plan); !homes.empty()) say("{}", homes);
    if (std::string link = link_in_words(run_, of_.machine, of_.step); !link.empty()) {
      say("{}.", capitalised(std::move(link)));
    }
    if (plan.optimizer_state == OptimizerState::cpu) {
      say("The optimizer's state is on the host, which updates the parameters.");
    } else if (plan.optimizer_state == OptimizerState::streamed) {
      const size_t share = plan.state_bytes_on_device;
      say("The optimizer's state is on the host{}, and each step moves it through the device.",
          share ? fmt::format(", but for {}", format_bytes(share)) : "");
    }
  }

  void say_what_leaves() {
    const size_t host = run_.foretold.host.peak, disk = run_.foretold.disk.peak;
    if (host + disk == 0) return;
    const std::string on_disk = disk ? fmt::format(" and {} of a disk", format_bytes(disk)) : "";
    const std::string waits = has_all_micro_batches()
                                  ? fmt::format("; the device waits for copies for {} of the step",
                                                percent(exposed_copies(of_.step.trace)))
                                  : "";
    say("What leaves the device takes {} of the host's memory{}{}.", format_bytes(host), on_disk,
        waits);
  }

  void say_what_it_saves() {
    if (!run_.search) return;
    const size_t kept = run_.search->keep_all_peak;
    if (kept <= peak()) return;
    const double more = seconds() - run_.search->keep_all_seconds;
    say("Keeping everything would take {} and {} a step: the plan saves {} ({}) and costs {} ({}).",
        format_bytes(kept), format_seconds(run_.search->keep_all_seconds),
        format_bytes(kept - peak()),
        percent(static_cast<double>(kept - peak()) / static_cast<double>(kept)),
        format_seconds(std::max(more, 0.0)),
        percent(std::max(more, 0.0) / run_.search->keep_all_seconds));
  }

  void say_the_bound() {
    if (!run_.search) return;
    if (run_.search->lower_bound <= 0) {
      return say(
          "How fast other plans within the budget are is not known: there is no lower bound.");
    }
    const double bound = run_.search->lower_bound;
    constexpr double min_gap = 5e-4;
    if (gap(run_) < min_gap) {
      say("No plan within the budget is faster.");
    } else {
      say("No plan within the budget takes less than {} a step: this one takes at most {} more "
          "than the fastest.",
          format_seconds(bound), percent(gap(run_)));
    }
  }

  void say_what_chunks_cost() {
    constexpr int expected = 8;
    const int threads = run_.chunks_hold_for_threads;
    if (threads != 0 && threads != expected) {
      say("The chunks hold for {}; runs with others may have other losses.",
          chunk_threads(threads));
    }
    if (run_.slowed_by_chunks > 0) {
      say("With chunks chosen by measured times and for these threads, on which losses would then "
          "depend, the step would be {} faster.",
          percent(run_.slowed_by_chunks));
    }
  }

  void say_what_more_buys() {
    for (const PlannedSteps& point : of_.frontier.points) {
      const double less = seconds() - point.foretold.seconds;
      if (point.limit <= run_.limit || less <= negligible * seconds()) continue;
      say("With {}, the next larger budget of the frontier that helps, a step would take {}, {} "
          "less.",
          format_bytes(point.limit), format_seconds(point.foretold.seconds), format_seconds(less));
      return;
    }
    if (of_.frontier.points.empty()) return;
    const bool keeping_is_faster =
        run_.search && run_.search->keep_all_seconds < (1 - negligible) * seconds();
    say("No larger budget would make the step faster{}.",
        keeping_is_faster ? " with what is set by hand" : "");
  }

  const PlanInWords& of_;
  const PlannedRun& run_;
  std::vector<std::string> all_;
};

}  // namespace

std::vector<std::string> plan_in_words(const PlanInWords& of) { return Sentences(of).all(); }

std::string chunk_threads(int threads) {
  if (threads == 1) return "1 thread";
  const bool for_fewer = threads == 2 || threads == 4 || threads == 8;
  return fmt::format("{}{} threads", for_fewer ? "up to " : "", threads);
}

}  // namespace spool
