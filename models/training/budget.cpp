#include "spool/models/training/budget.h"

#include "spool/runtime/units.h"

namespace spool {
namespace {

// Finds the largest number from 1 to `fails` - 1 whose peak is within the limit, or 0.  The peak
// rises with the number, and is too large for `fails`.
template <class PeakWith>
int64_t largest_that_fits(int64_t fails, size_t limit, const PeakWith& peak_with) {
  int64_t fits = 0;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (peak_with(middle) <= limit ? fits : fails) = middle;
  }
  return fits;
}

// A run that does not fit, and the bytes that it has.
struct Misfit {
  const PlannedRun& run;
  const RunRequest& request;
  const Machine& machine;
  size_t limit = 0;

  size_t peak_with_batch(int64_t batch) const {
    TrainingConfig config = run.config;
    config.batch = batch;
    return plan_run(config, request, machine).foretold.memory.peak;
  }
  size_t peak_with_threads(int64_t threads) const {
    Machine other = machine;
    other.architecture = CpuArchitecture{.threads = static_cast<int>(threads)};
    return plan_run(run.config, request, other).foretold.memory.peak;
  }
};

struct Advice {
  std::string text = {};
  std::vector<std::string> settings = {};  // keys
  explicit operator bool() const { return !text.empty(); }
};

// Fewer threads of a cpu, each of which has a workspace.
Advice threads_that_fit(const Misfit& m) {
  const auto* cpu = std::get_if<CpuArchitecture>(&m.machine.architecture);
  if (!cpu) return {};
  const auto peak_with = [&](int64_t threads) { return m.peak_with_threads(threads); };
  const int64_t fits = largest_that_fits(cpu->threads, m.limit, peak_with);
  if (fits == 0) return {};
  return {sentence("with ", fits, fits == 1 ? " thread" : " threads",
                   " it would fit, with a peak of ", peak_with(fits), " bytes"),
          {"threads"}};
}

Advice batch_that_fits(const Misfit& m) {
  const auto peak_with = [&](int64_t batch) { return m.peak_with_batch(batch); };
  const int64_t fits = largest_that_fits(m.run.config.batch, m.limit, peak_with);
  if (fits == 0) return {};
  return {sentence("a batch of ", fits, " would fit, with a peak of ", peak_with(fits), " bytes"),
          {"batch"}};
}

Advice what_fits(const Misfit& m, bool batch_is_fixed) {
  const Advice threads = threads_that_fit(m);
  const Advice batch = batch_is_fixed || m.request.plan ? Advice{} : batch_that_fits(m);
  if (threads && batch) return {threads.text + "; " + batch.text, {"threads", "batch"}};
  if (threads) return threads;
  if (batch) return batch;
  if (m.request.plan) return {"another plan may fit", {"plan"}};
  if (batch_is_fixed) {
    return {"a run that resumes keeps its batch; recompute or offload more",
            {"recompute", "offload"}};
  }
  return {sentence("even a batch of 1 would take ", format_bytes(m.peak_with_batch(1))), {"batch"}};
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

void check_fits(const PlannedRun& run, const RunRequest& request, const Machine& machine) {
  const MemoryLimit& limit = *request.limit;
  RunRequest unlimited = request;
  unlimited.limit.reset();
  const size_t peak = run.foretold.memory.peak;
  const auto check_limit = [&](const char* place, size_t bytes) {
    if (peak <= bytes) return;
    Advice advice = what_fits({run, unlimited, machine, bytes}, limit.batch_is_fixed);
    advice.settings.insert(advice.settings.begin(), "memory");
    fail_memory(
        {.what = "this run",
         .needed = peak,
         .available = bytes,
         .place = place,
         .advice = sentence("the peak is in ", place_of_peak(run, machine), "; ", advice.text),
         .settings = advice.settings});
  };
  check_limit("in the budget", run.budget);
  check_limit("on the device", device_memory(limit.device));
  check_host(run.foretold, limit.device);
}

}  // namespace

std::optional<Error> refuse(const PlannedRun& run, const RunRequest& request,
                            const Machine& machine) {
  try {
    check_fits(run, request, machine);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace spool
