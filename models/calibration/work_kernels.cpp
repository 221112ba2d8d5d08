#include "spool/models/calibration/work_kernels.h"

#include <algorithm>

#include "spool/planner/machines/machine.h"

namespace spool {
namespace {

constexpr int max_runs = 5;      // with one to warm up
constexpr double stands = 0.99;  // ends when a run lowers the sum by less than 1 %

// Adds the times of the spans to `times`, sets each launch to its smallest confirmed time, and
// returns the sum.
double lower(std::vector<KernelTime>& launches, const std::vector<TraceSpan>& spans,
             std::vector<std::vector<double>>& times) {
  check(spans.size() == launches.size(), "the work launches ", spans.size(),
        " kernels, and its rehearsal ", launches.size());
  double sum = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    KernelTime& launch = launches[i];
    check(spans[i].name == launch.name, "the work launches ", spans[i].name, " as kernel ", i,
          ", and its rehearsal ", launch.name);
    constexpr double min = 1e-9;  // a clock may not see the shortest
    const double seconds = std::max(spans[i].seconds(), min);
    times[i].push_back(seconds);
    launch.seconds = confirmed_min(times[i]);
    sum += launch.seconds;
  }
  return sum;
}

void run_traced(RepeatedWork& work, int64_t number, Stream& stream,
                const std::shared_ptr<Trace>& trace) {
  const Traced traced(stream, trace);
  work.run(number);
  stream.synchronize();
}

// Seconds of the work without events in between, on a device that runs behind the host; less than a
// pair of events takes by itself.
double replayed_seconds(RepeatedWork& work, Stream& stream) {
  constexpr int times = 3;
  work.run(/*number=*/0);  // captures
  const auto trace = std::make_shared<Trace>();
  const auto mark = [&] {
    const Traced traced(stream, trace);
    stream.wait(stream.record());  // does not wait, but is a span
  };
  for (int i = 0; i < times; ++i) {
    mark();
    work.run(i + 1);
  }
  mark();
  mark();
  stream.synchronize();
  const std::vector<TraceSpan> marks = trace->spans();
  const auto since_last = [&](size_t i) { return marks[i].begin - marks[i - 1].end; };
  std::vector<double> all;  // but the first, for which the device waited
  for (size_t i = 2; i <= times; ++i) all.push_back(since_last(i));
  return confirmed_min(std::move(all)) - since_last(times + 1);
}

// Takes off each launch what its events took: the share of what all take more than the work as it
// is replayed.  Returns that share.
double take_events_off(std::vector<KernelTime>& launches, double sum, double replayed) {
  constexpr double min = 0.5e-6;
  const double share = std::max(0.0, (sum - replayed) / static_cast<double>(launches.size()));
  for (KernelTime& k : launches) {
    if (k.seconds > min) k.seconds = std::max(k.seconds - share, min);
  }
  return share;
}

// Whether the work has run often enough.  `last`: the seconds of the last run.
bool is_enough(int runs, double last, double sum, double sum_before) {
  if (runs < 2) return false;
  const bool is_stable = runs > 3 && sum >= stands * sum_before;
  return is_stable || last > repeated_once || runs == max_runs;
}

}  // namespace

std::vector<TraceSpan> kernel_spans(std::vector<TraceSpan> spans) {
  std::erase_if(spans, [](const TraceSpan& span) {
    return span.activity != Activity::kernel || span.lane != TraceLane::compute;
  });
  return spans;
}

WorkKernels rehearse_kernels(const MeasurableWork& work, const Machine& of_ranks,
                             const std::optional<Layout>& layout) {
  Machine machine = of_ranks;
  machine.mesh.ranks = 0;  // a rank measures its kernels alone
  WorkKernels kernels;
  const auto trace = std::make_shared<Trace>();
  const Report report = rehearse_totals(machine, [&](MetaStream& stream) {
    const auto rehearsed = work.open(stream, {.layout = layout});
    const double start = stream.now();
    run_traced(*rehearsed, /*number=*/0, stream, trace);
    kernels.seconds = stream.now() - start;
    kernels.host_peak = rehearsed->host_memory().peak;
    kernels.disk_peak = rehearsed->disk().peak;
  });
  kernels.peak = report.memory.peak;
  for (const TraceSpan& span : kernel_spans(trace->spans())) {
    kernels.launches.push_back({.name = span.name, .cost = span.cost, .seconds = span.seconds()});
  }
  return kernels;
}

std::vector<KernelTime> distinct(std::vector<KernelTime> launches) {
  std::ranges::stable_sort(launches, before);
  std::vector<KernelTime> kernels;
  for (auto first = launches.begin(); first != launches.end();) {
    const auto last = std::find_if_not(first, launches.end(),
                                       [&](const KernelTime& k) { return same_kernel(k, *first); });
    KernelTime mean = *first;
    for (auto next = first + 1; next != last; ++next) mean.seconds += next->seconds;
    mean.seconds /= static_cast<double>(last - first);
    kernels.push_back(std::move(mean));
    first = last;
  }
  return kernels;
}

MeasuredKernels measure_kernels(const MeasurableWork& work, std::optional<Layout> layout,
                                WorkKernels kernels, Stream& stream, const MeasuringLimit& limit) {
  const double start = limit.clock();
  const auto measured = work.open(stream, {.host_bytes = kernels.host_peak,
                                           .disk_bytes = kernels.disk_peak,
                                           .layout = std::move(layout)});
  std::vector<std::vector<double>> times(kernels.launches.size());
  double begin = limit.clock(), sum = 0, last = 0;
  for (int runs = 1; runs <= max_runs; ++runs) {
    const auto trace = std::make_shared<Trace>(TraceClock::processor);
    run_traced(*measured, runs - 1, stream, trace);
    const double end = limit.clock(), sum_before = sum;
    last = end - begin;
    const bool is_late = end - start + last > limit.seconds;
    begin = end;
    if (runs == 1 && !is_late) continue;  // the warm-up
    sum = lower(kernels.launches, kernel_spans(trace->spans()), times);
    if (is_enough(runs, last, sum, sum_before)) break;
    if (!is_late) continue;
    limit.late(runs, end - start);
    break;
  }
  double event_seconds = 0;
  constexpr double replays = 4;
  const bool has_time = begin - start + replays * last <= limit.seconds && last <= repeated_once;
  if (stream.captures() && has_time) {
    event_seconds = take_events_off(kernels.launches, sum, replayed_seconds(*measured, stream));
  }
  return {std::move(kernels.launches), event_seconds};
}

}  // namespace spool
