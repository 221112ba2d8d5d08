#include "spool/models/training/exchange_foretold.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/planner/report/exposed_exchanges.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using nlohmann::json;

// The most bytes of exchanges that are live at a time.
size_t max_bytes_of_exchanges(const AllocationHistory& history) {
  struct Change {
    size_t event = 0;
    bool is_birth = false;
    size_t bytes = 0;
  };
  std::vector<Change> changes;
  for (const LoggedAllocation& a : history.all) {
    if (a.label.purpose != Purpose::exchange) continue;
    changes.push_back({.event = a.birth, .is_birth = true, .bytes = a.bytes});
    changes.push_back({.event = a.death, .bytes = a.bytes});
  }
  std::ranges::stable_sort(changes, {}, &Change::event);
  size_t live = 0, most = 0;
  for (const Change& change : changes) {
    live = change.is_birth ? live + change.bytes : live - change.bytes;
    most = std::max(most, live);
  }
  return most;
}

uint64_t hash_of_layout(const AllocationHistory& history) {
  Hash hash;
  for (const LoggedAllocation& a : history.all) {
    hash.add(int64_t{a.address - history.all.front().address});
    for (const size_t n : {a.bytes, a.birth, a.death}) hash.add(uint64_t{n});
  }
  return hash.state();
}

// What a name says before the value and the node that move.
ExchangesOfAName& of_name(std::vector<ExchangesOfAName>& list, std::string_view name) {
  name = name.substr(0, name.find(','));
  const auto at = std::ranges::find(list, name, &ExchangesOfAName::name);
  return at != list.end() ? *at : list.emplace_back(ExchangesOfAName{.name = std::string(name)});
}

// Of an exchange, while compute waits for any.
double exposed_seconds_of(const TraceSpan& exchange, const std::vector<Trace::Interval>& waits) {
  double seconds = 0;
  for (const auto& [begin, end] : waits) {
    seconds += std::max(0.0, std::min(exchange.end, end) - std::max(exchange.begin, begin));
  }
  return seconds;
}

// "415" beside "623 MiB", or "900 KiB" beside it.
std::string in_unit_of(const std::string& sum, size_t bytes) {
  const std::string text = format_bytes(bytes), unit = sum.substr(sum.find(' '));
  return text.ends_with(unit) ? text.substr(0, text.size() - unit.size()) : text;
}

const char* what_is_divided(int zero) {
  return zero == 0   ? "nothing divided"
         : zero == 1 ? "state divided"
         : zero == 2 ? "gradients and state divided"
                     : "parameters, gradients and state divided";
}

std::string count_of(int64_t count, const char* what, const char* plural = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

}  // namespace

size_t ExchangeForetold::sent(std::string_view name) const {
  size_t bytes = 0;
  for (const ExchangesOfAName& of : list) bytes += of.name.starts_with(name) ? of.bytes : 0;
  return bytes;
}

ExchangeForetold exchanges_of(const RehearsedStep& step) {
  ExchangeForetold foretold;
  Hash order;
  const auto waits = waits_for_exchanges(step.trace);
  for (const TraceSpan& span : step.trace) {
    if (span.lane != TraceLane::exchange || span.activity == Activity::wait) continue;
    foretold.seconds += span.seconds();
    if (span.activity != Activity::host) continue;  // a sum
    ExchangesOfAName& of = of_name(foretold.list, span.name);
    ++of.count;
    of.bytes += span.bytes;
    of.seconds += span.seconds();
    of.exposed_seconds += exposed_seconds_of(span, waits);
    foretold.sent_bytes += span.bytes;
    order.add(std::string_view(span.name));
  }
  foretold.exposed_seconds = exposed_exchange_seconds(step.trace);
  foretold.max_bytes = max_bytes_of_exchanges(step.allocations);
  foretold.order = order.state();
  foretold.layout = hash_of_layout(step.allocations);
  return foretold;
}

std::string ranks_in_words(const ExchangeForetold& of, std::string machine) {
  constexpr std::string_view first = "cuda:0";  // ranks have one each
  if (machine.starts_with(first)) machine.erase(first.size() - 2, 2);
  const bool has_machines = of.ranks_of_machine > 0 && of.ranks_of_machine < of.ranks;
  return fmt::format("{}{} of {}{}", count_of(of.ranks, "rank"),
                     of.launcher.empty() ? "" : fmt::format(" by {}", of.launcher), machine,
                     has_machines ? fmt::format(", {} on a machine", of.ranks_of_machine) : "");
}

std::string division_in_words(const ExchangeForetold& of) {
  std::string words = count_of(of.micro_batches, "micro-batch", "es") + " a rank";
  if (of.replicas > 1 || of.ranks == 1) {
    words += fmt::format("; ZeRO {}: {}", of.zero, what_is_divided(of.zero));
  }
  if (of.replicas > 1) {
    words += fmt::format("; {} of {} in flight", count_of(of.buckets_in_flight, "bucket"),
                         format_bytes(of.bucket_bytes));
  }
  if (of.rounded_from == 0) return words;
  return fmt::format("{}; {} a step instead of {}, which {} ranks can share", words,
                     of.micro_batches * of.replicas, of.rounded_from, of.replicas);
}

std::string sent_in_words(const ExchangeForetold& of) {
  const std::string sum = format_bytes(of.sent_bytes);
  std::string parts;
  for (const char* name : {"gradients", "parameters"}) {
    if (of.sent(name) == 0) continue;
    parts +=
        fmt::format("{} {} {}", parts.empty() ? ":" : ",", in_unit_of(sum, of.sent(name)), name);
  }
  return "sent by a rank" + parts;
}

std::vector<ExchangesOfAName> moves_of(const ExchangeForetold& of) {
  std::vector<ExchangesOfAName> moves;
  for (const ExchangesOfAName& e : of.list) {
    if (e.name.find(" along ") != std::string::npos) moves.push_back(e);
  }
  return moves;
}

std::string link_rate(const ExchangeForetold& of) {
  return fmt::format("{:.3g} GB/s", of.link.bytes_per_second / 1e9);
}

std::string link_note(const ExchangeForetold& of) {
  return fmt::format(
      "each way, and {}; {}", format_seconds(of.link.seconds),
      of.measured_link.empty() ? "not measured" : "measured, by " + of.measured_link);
}

std::string sentence_of(const ExchangeForetold& of, double step_seconds) {
  size_t count = 0;
  for (const ExchangesOfAName& all : of.list) count += all.count;
  return fmt::format(
      "Each of {} sends {} a step, in {}, which take {}; nothing hides {} of it, {:.1f} % of the "
      "step.",
      count_of(of.ranks, "rank"), format_bytes(of.sent_bytes),
      count_of(static_cast<int64_t>(count), "exchange"), format_seconds(of.seconds),
      format_seconds(of.exposed_seconds), 100 * of.exposed_seconds / step_seconds);
}

json to_json(const ExchangeForetold& of) {
  json list = json::array();
  for (const ExchangesOfAName& all : of.list) {
    list.push_back({{"name", all.name},
                    {"count", all.count},
                    {"bytes", all.bytes},
                    {"ms", 1e3 * all.seconds},
                    {"exposed_ms", 1e3 * all.exposed_seconds}});
  }
  json members{{"ranks", of.ranks},
               {"ranks_of_machine", of.ranks_of_machine > 0 ? of.ranks_of_machine : of.ranks},
               {"zero", of.zero},
               {"buckets_in_flight", of.buckets_in_flight},
               {"bucket_bytes", of.bucket_bytes},
               {"exchange",
                {{"link",
                  {{"seconds", of.link.seconds},
                   {"bytes_per_second", of.link.bytes_per_second},
                   {"measured", of.measured_link}}},
                 {"sent_bytes", of.sent_bytes},
                 {"seconds", of.seconds},
                 {"exposed_seconds", of.exposed_seconds},
                 {"max_bytes", of.max_bytes},
                 {"list", std::move(list)}}}};
  if (!of.peaks.empty()) members["peak_bytes_by_rank"] = of.peaks;
  return members;
}

}  // namespace spool
