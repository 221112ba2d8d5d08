#include "spool/planner/report/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "spool/planner/report/exposed_exchanges.h"
#include "spool/planner/report/timeline_json.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

using nlohmann::json;

// Microseconds in eighths, which are exact in binary and a whole number of nanoseconds: a viewer,
// which truncates to nanoseconds, shows spans nested and ordered as they are here.
double microseconds(double seconds) { return std::round(seconds * 8e6) / 8; }

std::string text(const TraceContext& c) {
  return sentence(c.task, c.op ? " " : "", c.op ? c.op : "",
                  c.node >= 0 ? sentence(" #", c.node) : "",
                  c.chunk >= 0 ? sentence(", chunk ", c.chunk) : "");
}

std::string title(const TraceSpan& span) {
  if (!span.context) return span.name;
  if (span.activity == Activity::host && span.lane == TraceLane::host) return text(span.context);
  if (span.activity == Activity::copy) return sentence(span.name, ": ", text(span.context));
  return span.name;
}

// The lane of exchanges, which few traces have, comes after the others' numbers.
int thread_of(TraceLane lane) {
  constexpr std::array order{TraceLane::compute, TraceLane::copy_out, TraceLane::copy_in,
                             TraceLane::update,  TraceLane::host,     TraceLane::exchange};
  static_assert(order.size() == enumerator_names<TraceLane>.size());
  return static_cast<int>(std::ranges::find(order, lane) - order.begin()) + 1;
}

// The events of one process.
class Process {
 public:
  Process(int id, json& events) : id_(id), events_(events) {}

  void introduce(const std::string& name, bool has_exchanges) {
    metadata("process_name", 0, {{"name", name}});
    metadata("process_sort_index", 0, {{"sort_index", id_}});
    for (const TraceLane lane : enumerators<TraceLane>()) {
      if (lane == TraceLane::exchange && !has_exchanges) continue;
      const int thread = thread_of(lane);
      metadata("thread_name", thread, {{"name", spool::name(lane)}});
      metadata("thread_sort_index", thread, {{"sort_index", static_cast<int>(lane) + 1}});
    }
  }

  void show(const std::vector<TraceSpan>& spans) {
    for (const TraceLane lane : enumerators<TraceLane>()) show(spans, lane);
    count(spans, "live bytes", &TraceSpan::live);
    const auto on_host = [](const TraceSpan& span) { return span.host_live > 0; };
    if (std::ranges::any_of(spans, on_host)) count(spans, "host bytes", &TraceSpan::host_live);
  }

 private:
  // Writes an enclosing span before the spans in it.
  void show(const std::vector<TraceSpan>& all, TraceLane lane) {
    std::vector<const TraceSpan*> spans;
    for (const TraceSpan& span : all) {
      if (span.lane == lane) spans.push_back(&span);
    }
    const auto differ_in_op = [](const TraceSpan* a, const TraceSpan* b) {
      return a->context != b->context;
    };
    for (auto first = spans.begin(); first != spans.end();) {
      auto end = std::ranges::adjacent_find(first, spans.end(), differ_in_op);
      if (end != spans.end()) ++end;
      const TraceSpan &begins = **first, &ends = **(end - 1);
      if (lane == TraceLane::compute && begins.context) {
        complete(text(begins.context), "op", lane, begins.begin, ends.end);
      }
      for (; first != end; ++first) show(**first);
    }
  }

  void show(const TraceSpan& span) {
    json& event =
        complete(title(span), spool::name(span.activity), span.lane, span.begin, span.end);
    if (span.activity == Activity::copy || span.bytes > 0) event["args"]["bytes"] = span.bytes;
    if (span.lane != TraceLane::host) event["args"]["live bytes"] = span.live;
  }

  // A counter of bytes: its value when each piece of work was issued, shown where the work begins.
  void count(const std::vector<TraceSpan>& spans, const char* name, size_t TraceSpan::*bytes) {
    for (const TraceSpan& span : spans) {
      if (span.lane != TraceLane::compute) continue;
      events_.push_back({{"ph", "C"},
                         {"pid", id_},
                         {"name", name},
                         {"ts", microseconds(span.begin)},
                         {"args", {{"bytes", span.*bytes}}}});
    }
  }

  json& complete(const std::string& name, const char* category, TraceLane lane, double begin,
                 double end) {
    events_.push_back({{"ph", "X"},
                       {"pid", id_},
                       {"tid", thread_of(lane)},
                       {"name", name},
                       {"cat", category},
                       {"ts", microseconds(begin)},
                       {"dur", microseconds(end) - microseconds(begin)}});
    return events_.back();
  }

  void metadata(const char* what, int thread, json arguments) {
    events_.push_back({{"ph", "M"},
                       {"pid", id_},
                       {"tid", thread},
                       {"name", what},
                       {"args", std::move(arguments)}});
  }

  int id_;
  json& events_;
};

bool has_lane(const std::vector<TraceSpan>& spans, TraceLane lane) {
  return std::ranges::find(spans, lane, &TraceSpan::lane) != spans.end();
}

// Seconds of work, without waits.
double busy(const std::vector<TraceSpan>& spans, TraceLane lane) {
  double sum = 0;
  for (const TraceSpan& span : spans) {
    if (span.lane == lane && span.activity != Activity::wait) sum += span.seconds();
  }
  return sum;
}

json summary(const std::vector<TraceSpan>& spans) {
  size_t kernels = 0, max_live = 0;
  for (const TraceSpan& span : spans) {
    kernels += span.activity == Activity::kernel;
    max_live = std::max(max_live, span.live);
  }
  json waits = json::object();
  for (const TraceLane lane : {TraceLane::compute, TraceLane::copy_out, TraceLane::copy_in}) {
    waits[name(lane)] = waited(spans, lane);
  }
  json summary{{"seconds", seconds(spans)},
               {"kernels", kernels},
               {"most_live_bytes", max_live},
               {"waited_seconds", waits},
               {"exposed_copies", exposed_copies(spans)}};
  if (has_lane(spans, TraceLane::exchange)) {
    summary["exchange_seconds"] = busy(spans, TraceLane::exchange);
    summary["exposed_exchange_seconds"] = exposed_exchange_seconds(spans);
  }
  return summary;
}

}  // namespace

double exposed_copies(const std::vector<TraceSpan>& spans) {
  double waits = 0;
  const std::vector<Trace::Interval> exchanges = waits_for_exchanges(spans);
  for (const TraceSpan& span : spans) {
    const bool is_wait = span.lane == TraceLane::compute && span.activity == Activity::wait;
    const Trace::Interval when{span.begin, span.end};
    if (is_wait && !std::ranges::binary_search(exchanges, when)) waits += span.seconds();
  }
  const double whole = seconds(spans);
  return whole > 0 ? waits / whole : 0;
}

json trace_json(const std::vector<NamedTrace>& traces) {
  json file{
      {"displayTimeUnit", "ms"}, {"otherData", json::object()}, {"traceEvents", json::array()}};
  int id = 0;
  for (const NamedTrace& trace : traces) {
    Process process(++id, file["traceEvents"]);
    process.introduce(trace.name, has_lane(trace.spans, TraceLane::exchange));
    process.show(trace.spans);
    file["otherData"][trace.name] = summary(trace.spans);
  }
  return file;
}

void write_trace(const std::string& path, const std::vector<NamedTrace>& traces) {
  write_text_file_atomically(path, trace_json(traces).dump());
}

bool is_trace(const std::string& path) {
  // How the text of trace_json() begins; its keys are sorted.
  constexpr std::string_view beginning = R"({"displayTimeUnit":"ms","otherData":{)";
  const File file = File::open(path);
  std::array<char, beginning.size()> bytes{};
  if (file.size() < bytes.size()) return file.size() == 0;
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return std::string_view(bytes.data(), bytes.size()) == beginning;
}

}  // namespace spool
