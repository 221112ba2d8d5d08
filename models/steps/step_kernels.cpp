#include "spool/models/steps/step_kernels.h"

#include <algorithm>

#include "spool/models/steps/step_executor.h"
#include "spool/planner/machines/machine.h"

namespace spool {
namespace {

constexpr int max_passes = 5;     // with one to warm up
constexpr int min_passes = 3;     // until a second pass can confirm each time
constexpr int64_t different = 2;  // micro-batches: the last launches what those in the middle do
constexpr double stands = 0.99;   // ends when a pass lowers the sum by less than 1 %

// Adds the times of the spans to `times`, sets each launch to its smallest confirmed time, and
// returns the sum.
double lower(std::vector<KernelTime>& launches, const std::vector<TraceSpan>& spans,
             std::vector<std::vector<double>>& times) {
  check(spans.size() == launches.size(), "the step launches ", spans.size(),
        " kernels, and its rehearsal ", launches.size());
  double sum = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    KernelTime& launch = launches[i];
    check(spans[i].name == launch.name, "the step launches ", spans[i].name, " as kernel ", i,
          ", and its rehearsal ", launch.name);
    constexpr double min = 1e-9;  // a clock may not see the shortest
    const double seconds = std::max(spans[i].seconds(), min);
    times[i].push_back(seconds);
    launch.seconds = confirmed_min(times[i]);
    sum += launch.seconds;
  }
  return sum;
}

// A step of the model, ready to run on a placeholder.
class CalibratedStep {
 public:
  CalibratedStep(const StepDescription& described, const StepPlans& plans, Stream& stream)
      : stream_(stream),
        model_(described.make_model(stream)),
        executor_(*model_, with_micro_batches(described, different).config, plans, stream) {
    model_->initialise(described.config.seed);
    executor_.optimizer().initialise();
    executor_.prepare(/*learning_rate=*/0);
    stream_.synchronize();
  }

  // At learning rate 0, parameters keep their values.
  void run(int64_t number, const std::shared_ptr<Trace>& trace) {
    const Traced traced(stream_, trace);
    executor_.run(Step{.number = number}, [&](int64_t) { model_->upload_placeholder(); });
    stream_.synchronize();
  }
  const StepExecutor& executor() const { return executor_; }

 private:
  Stream& stream_;
  std::unique_ptr<StepModel> model_;
  StepExecutor executor_;
};

}  // namespace

std::vector<TraceSpan> kernel_spans(std::vector<TraceSpan> spans) {
  std::erase_if(spans, [](const TraceSpan& span) {
    return span.activity != Activity::kernel || span.lane != TraceLane::compute;
  });
  return spans;
}

StepKernels rehearse_kernels(const StepDescription& step, const StepPlans& plans,
                             const Machine& machine) {
  StepKernels kernels;
  const auto trace = std::make_shared<Trace>();
  const Report report = rehearse_totals(machine, [&](MetaStream& stream) {
    CalibratedStep rehearsed(step, plans, stream);
    const double start = stream.now();
    rehearsed.run(/*number=*/0, trace);
    kernels.seconds = stream.now() - start;
    kernels.host_peak = rehearsed.executor().host_memory().peak;
    kernels.disk_peak = rehearsed.executor().disk().peak;
  });
  kernels.peak = report.memory.peak;
  for (const TraceSpan& span : kernel_spans(trace->spans())) {
    kernels.launches.push_back({.name = span.name, .cost = span.cost, .seconds = span.seconds()});
  }
  return kernels;
}

std::optional<Layout> lay_out_kernels(const StepDescription& step, const StepPlans& plans,
                                      const Machine& machine) {
  return lay_out_step(with_micro_batches(step, different), plans, machine);
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

std::vector<KernelTime> measure_kernels(const StepDescription& step, StepPlans plans,
                                        StepKernels kernels, Stream& stream,
                                        const MeasuringLimit& limit) {
  const double start = limit.clock();
  plans.host_bytes = kernels.host_peak;
  plans.disk_bytes = kernels.disk_peak;
  CalibratedStep measured(step, plans, stream);
  std::vector<std::vector<double>> times(kernels.launches.size());
  double sum = 0;
  for (int pass = 0; pass < max_passes; ++pass) {
    const auto trace = std::make_shared<Trace>(TraceClock::processor);
    measured.run(pass, trace);
    if (pass == 0) continue;  // the warm-up
    const double before = sum;
    sum = lower(kernels.launches, kernel_spans(trace->spans()), times);
    if (pass > 2 && sum >= stands * before) break;
    const double taken = limit.clock() - start;
    if (pass + 1 < min_passes || pass + 1 == max_passes || taken < limit.seconds) continue;
    limit.late(pass + 1, taken);
    break;
  }
  return std::move(kernels.launches);
}

}  // namespace spool
