#include "spool/models/cli/tables/rank_rows.h"

#include <algorithm>

#include "spool/models/cli/tables/plan_rows.h"
#include "spool/models/training/sharding_choice.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

// Empty if the ranks have processors enough.
std::string crowd_words(const RunOptions& o) {
  const int threads = o.threads * o.sharers, processors = usable_cores();
  if (threads <= processors) return "";
  const auto s = [](int n) { return n == 1 ? "" : "s"; };
  return fmt::format("{} threads of {} rank{} on {} processor{}: slower than foretold", threads,
                     o.sharers, s(o.sharers), processors, s(processors));
}

// Of values that move: "all-reduce along tensor, 50 in 2.0 ms, exposed 1.8 ms".
std::string move_rows(const ExchangeForetold& e) {
  std::string rows;
  for (const ExchangesOfAName& move : moves_of(e)) {
    rows += row("  moved", format_bytes(move.bytes),
                fmt::format("{}, {} in {}, exposed {}", move.name, move.count,
                            format_seconds(move.seconds), format_seconds(move.exposed_seconds)));
  }
  return rows;
}

}  // namespace

std::vector<std::string> rank_lines(const RunOptions& o, const PlannedRun& run) {
  std::vector<std::string> lines;
  if (run.exchange) {
    lines.push_back(division_in_words(*run.exchange));
    for (const std::string& cut : run.exchange->cuts) lines.push_back(cut);
  }
  if (const std::string crowd = crowd_words(o); !crowd.empty()) lines.push_back(crowd);
  return lines;
}

std::string exchange_row(const PlannedRun& run, size_t bytes) {
  if (!run.exchange) return bytes == 0 ? "" : row(name(Purpose::exchange), format_bytes(bytes));
  return row(name(Purpose::exchange), format_bytes(bytes),
             "at the peak; at most " + format_bytes(run.exchange->max_bytes));
}

std::string peak_note(const PlannedRun& run) {
  if (!run.exchange) return "";
  const std::vector<size_t>& peaks = run.exchange->peaks;
  if (peaks.empty()) return "of each rank";
  return fmt::format("of rank {}, the most; the least is {}",
                     std::ranges::max_element(peaks) - peaks.begin(),
                     format_bytes(*std::ranges::min_element(peaks)));
}

std::string sum_row(const CpuArchitecture* cpu, const PlannedRun& run) {
  if (!cpu || !run.exchange || run.exchange->ranks < 2) return "";
  const int shared = run.exchange->ranks_of_machine;
  const int ranks = shared > 0 ? shared : run.exchange->ranks;
  return row("  of a machine", format_bytes(static_cast<size_t>(ranks) * run.foretold.memory.peak),
             fmt::format("its {} ranks together", ranks));
}

std::string exchange_rows(const PlannedRun& run) {
  if (!run.exchange) return "";
  const ExchangeForetold& e = *run.exchange;
  return row("exchanged a step", format_bytes(e.sent_bytes), sent_in_words(e)) + move_rows(e) +
         row("  takes", format_seconds(e.seconds),
             fmt::format("exposed {}, {} of the step", format_seconds(e.exposed_seconds),
                         percent(e.exposed_seconds / run.foretold.seconds))) +
         (e.ranks > 1 ? row("  by a link of", link_rate(e), link_note(e)) : "");
}

std::string sharding_rows(const PlannedRun& run) {
  if (!run.sharding) return "";
  const ShardingChoice& choice = *run.sharding;
  std::string rows = row("shards", choice.best().name,
                         fmt::format("of {} candidates, in {}", choice.all.size(),
                                     format_seconds(choice.search_seconds)));
  for (const JudgedSharding& judged : choice.all) {
    if (&judged == &choice.best()) continue;
    const auto& planned = judged.planned;
    const size_t peak = planned ? planned->peak : judged.peak;
    const std::string note =
        planned && !planned->fits
            ? fmt::format("does not fit: needs {}", format_bytes(peak))
            : fmt::format("{}{}", format_bytes(peak), planned ? "" : ", with all kept");
    rows +=
        row("  " + judged.name, format_seconds(planned ? planned->seconds : judged.seconds), note);
  }
  for (const ShardCandidates::Refused& refused : choice.refused) {
    rows += row("  " + refused.name, "refused", refused.why);
  }
  return rows;
}

}  // namespace spool
