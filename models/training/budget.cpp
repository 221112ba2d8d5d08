#include "spool/models/training/budget.h"

#include "spool/runtime/units.h"

namespace spool {
namespace {

// The largest batch whose foretold peak is within the limit, in words.
std::string batch_that_fits(const PlannedRun& run, const RunRequest& request,
                            const Machine& machine, size_t limit) {
  const auto peak_with = [&](int64_t batch) {
    TrainingConfig config = run.config;
    config.batch = batch;
    return plan_run(config, request, machine).foretold.memory.peak;
  };
  int64_t fits = 0, fails = run.config.batch;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (peak_with(middle) <= limit ? fits : fails) = middle;
  }
  return fits > 0 ? sentence("a batch of ", fits, " would fit, with a peak of ", peak_with(fits),
                             " bytes")
                  : sentence("even a batch of 1 would take ", format_bytes(peak_with(1)));
}

void check_host(const Report& foretold, const Device& device) {
  const bool shared = device.type == DeviceType::cpu;  // the device's memory is the host's
  const size_t available = device_memory({DeviceType::cpu});
  const size_t needed = foretold.host.peak + (shared ? foretold.memory.peak : 0);
  if (foretold.host.peak == 0 || needed <= available) return;
  fail_memory({.what = shared ? "this run, with what is offloaded," : "what is offloaded",
               .needed = needed,
               .available = available,
               .place = "on the host",
               .advice = "offload less, or to a disk (disk:DIRECTORY), or keep the optimizer's "
                         "state on the device",
               .settings = {"offload", "offload-to", "optimizer-state"}});
}

}  // namespace

void check_budget(const PlannedRun& run, const RunRequest& request, const Machine& machine,
                  const Device& device, size_t budget) {
  const size_t peak = run.foretold.memory.peak;
  const auto check_limit = [&](const char* place, size_t limit) {
    if (peak <= limit) return;
    fail_memory({.what = "this run",
                 .needed = peak,
                 .available = limit,
                 .place = place,
                 .advice = request.plan ? "another plan may fit"
                                        : batch_that_fits(run, request, machine, limit),
                 .settings = {"memory", "batch"}});
  };
  check_limit("in the budget", budget);
  check_limit("on the device", device_memory(device));
  check_host(run.foretold, device);
}

}  // namespace spool
