#include "spool/models/training/budget.h"

#include "spool/runtime/units.h"

namespace spool {
namespace {

// The largest batch whose foretold peak is within the limit, in words.
std::string batch_that_fits(const RunOptions& options, const Machine& machine,
                            const SampleLength& sample, size_t limit) {
  const auto peak_with = [&](int64_t batch) {
    TrainingConfig config = options.training;
    config.batch = batch;
    TrainingPlans plans = make_plans(config, options.policy, machine);
    plans.layout = lay_out_step(config, plans, machine);
    return rehearse_training(config, plans, machine, sample).memory.peak;
  };
  int64_t fits = 0, fails = options.training.batch;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (peak_with(middle) <= limit ? fits : fails) = middle;
  }
  return fits > 0 ? sentence("a batch of ", fits, " would fit, with a peak of ", peak_with(fits),
                             " bytes")
                  : sentence("even a batch of 1 would take ", format_bytes(peak_with(1)));
}

void check_host(const RunOptions& options, const Report& foretold) {
  const size_t available = device_memory({DeviceType::cpu});
  const bool shared = options.device.type == DeviceType::cpu;  // the device's memory is the host's
  const size_t on_device = foretold.memory.peak;
  const size_t needed = foretold.host.peak + (shared ? on_device : 0);
  if (foretold.host.peak == 0 || needed <= available) return;
  throw Error(ErrorKind::memory,
              sentence("this run needs ", format_bytes(foretold.host.peak), " (",
                       foretold.host.peak, " bytes) of the host's memory",
                       shared ? " beside the device's " + format_bytes(on_device) : "",
                       ", and the machine has ", format_bytes(available),
                       "; offload less, or to a disk (disk:DIRECTORY), or keep the optimizer's ",
                       "state on the device"),
              {.needed = needed,
               .capacity = available,
               .settings = {"offload", "offload-to", "optimizer-state"}});
}

}  // namespace

void check_budget(const RunOptions& options, const Machine& machine, const Report& foretold,
                  const SampleLength& sample, size_t budget) {
  const size_t peak = foretold.memory.peak;
  const auto check_limit = [&](const char* what, size_t limit) {
    if (peak <= limit) return;
    const std::string advice = options.plan.empty()
                                   ? batch_that_fits(options, machine, sample, limit)
                                   : "another plan may fit";
    throw Error(ErrorKind::memory,
                sentence(what, format_bytes(limit), " (", limit, " bytes), and this run needs ",
                         format_bytes(peak), " (", peak, " bytes); ", advice),
                {.needed = peak, .capacity = limit, .settings = {"memory", "batch"}});
  };
  check_limit("the budget is ", budget);
  check_limit("the device has ", device_memory(options.device));
  check_host(options, foretold);
}

}  // namespace spool
