#include "spool/models/training/budget.h"

#include <algorithm>

#include "spool/models/training/run_search.h"
#include "spool/runtime/memory/host_memory.h"
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

// The same cpu with another number of threads.
Machine with_threads(Machine machine, int64_t threads) {
  machine.architecture = CpuArchitecture{.threads = static_cast<int>(threads)};
  return machine;
}

TrainingConfig with_batch(TrainingConfig config, int64_t batch) {
  config.batch = batch;
  // Nodes that look along the sequence run in no more chunks than there are rows.
  for (NodesInChunks& nodes : config.in_chunks) {
    nodes.chunks = static_cast<int>(std::min<int64_t>(nodes.chunks, batch));
  }
  std::erase_if(config.in_chunks, [](const NodesInChunks& nodes) { return nodes.chunks == 1; });
  return config;
}

TrainingConfig with_rows(TrainingConfig config, int64_t batch, int64_t seq) {
  config = with_batch(std::move(config), batch);
  config.seq = seq;
  return config;
}

// A run that does not fit, and the bytes that it has.
struct Misfit {
  const PlannedRun& run;
  const RunRequest& request;
  const Machine& machine;
  size_t limit = 0;

  size_t peak_with_batch(int64_t batch) const {
    return plan_run(with_batch(run.config, batch), request, machine).foretold.memory.peak;
  }
  size_t peak_with_threads(int64_t threads) const {
    const Machine other = with_threads(machine, threads);
    return plan_run(run.config, request, other).foretold.memory.peak;
  }
};

struct Advice {
  std::string text = {};
  std::vector<std::string> settings = {};  // keys
  explicit operator bool() const { return !text.empty(); }
};

// What smaller steps may fit, if the least of them do; fits(batch, seq) tells.
template <class Fits>
Advice smaller_steps(const TrainingConfig& c, bool batch_is_fixed, const Fits& fits) {
  const bool fewer = c.batch > 1 && !batch_is_fixed, shorter = c.seq > 1;
  if (fewer && fits(1, c.seq)) return {"a smaller batch may fit", {"batch"}};
  if (shorter && fits(c.batch, 1)) return {"shorter rows may fit", {"seq"}};
  if (fewer && shorter && fits(1, 1)) {
    return {"a smaller batch of shorter rows may fit", {"batch", "seq"}};
  }
  return {"no smaller batch and no shorter rows were found to fit", {"batch", "seq"}};
}

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

Advice all_of(const Advice& a, const Advice& b) {
  if (!a) return b;
  if (!b) return a;
  Advice both{.text = a.text + "; " + b.text, .settings = a.settings};
  both.settings.insert(both.settings.end(), b.settings.begin(), b.settings.end());
  return both;
}

Advice what_fits(const Misfit& m, bool batch_is_fixed) {
  const Advice threads = threads_that_fit(m);
  const Advice batch = batch_is_fixed || m.request.plan ? Advice{} : batch_that_fits(m);
  if (threads || batch) return all_of(threads, batch);
  if (m.request.plan) return {"another plan may fit", {"plan"}};
  if (batch_is_fixed) {
    return {"a run that resumes keeps its batch; recompute or offload more",
            {"recompute", "offload"}};
  }
  const TrainingConfig& c = m.run.config;
  if (c.batch > 1) {
    return {sentence("even a batch of 1 would take ", format_bytes(m.peak_with_batch(1))),
            {"batch"}};
  }
  return smaller_steps(c, batch_is_fixed, [&](int64_t rows, int64_t seq) {
    return plan_run(with_rows(c, rows, seq), m.request, m.machine).foretold.memory.peak <= m.limit;
  });
}

// A run that was searched for and does not fit, not even the smallest that was found.
struct FutileSearch {
  const PlannedRun& run;
  const RunRequest& request;
  const Machine& machine;

  // The request, with the plan that was found as far as it suits this configuration.
  RunRequest with_plan_found(const TrainingConfig& config) const {
    RunRequest same{.policy = request.policy,
                    .graph = request.graph,
                    .spill_directory = request.spill_directory,
                    .sample = request.sample};
    if (!request.choose.placement) return same;
    const Plan own = make_plans(config, request.policy, machine).step;
    same.plan = run.plans.step;
    same.plan->chunks = own.chunks;
    same.plan->regions = own.regions;
    for (const Region& r : run.plans.step.regions) {
      if (r.chunks == 1) same.plan->regions.push_back(r);
    }
    sort_regions(*same.plan);
    return same;
  }
  size_t peak_with(const TrainingConfig& config, const Machine& other) const {
    return plan_run(config, with_plan_found(config), other).foretold.memory.peak;
  }
  // Whether something was set by hand, and a plan that is chosen fits.
  bool fits_if_chosen() const {
    if (request.choose.placement) return false;
    return RunSearch(run.config, request, machine).can_choose_within(run.limit);
  }
  // Whether a search within the limit finds a plan.
  bool fits(const TrainingConfig& config, const Machine& other) const {
    return RunSearch(config, request, other).plan(run.limit).search->fits;
  }
};

// Fewer threads or rows are found by rehearsals of the plan that was found, and confirmed by
// searches: chunks that suit a run may not divide the rows of a smaller one.
template <class Fits>
int64_t confirmed(int64_t number, const Fits& fits) {
  while (number > 0 && !fits(number)) number = number * 3 / 4;
  return number;
}

Advice threads_to_search(const FutileSearch& f) {
  const auto* cpu = std::get_if<CpuArchitecture>(&f.machine.architecture);
  if (!cpu) return {};
  const auto with = [&](int64_t threads) { return with_threads(f.machine, threads); };
  const auto peak_with = [&](int64_t threads) { return f.peak_with(f.run.config, with(threads)); };
  const int64_t fits =
      confirmed(largest_that_fits(cpu->threads, f.run.limit, peak_with),
                [&](int64_t threads) { return f.fits(f.run.config, with(threads)); });
  if (fits == 0) return {};
  return {sentence("with ", fits, fits == 1 ? " thread" : " threads", " it would fit"),
          {"threads"}};
}

Advice batch_to_search(const FutileSearch& f) {
  const auto with = [&](int64_t batch) { return with_batch(f.run.config, batch); };
  const auto peak_with = [&](int64_t batch) { return f.peak_with(with(batch), f.machine); };
  const int64_t fits = confirmed(largest_that_fits(f.run.config.batch, f.run.limit, peak_with),
                                 [&](int64_t batch) { return f.fits(with(batch), f.machine); });
  if (fits == 0) return {};
  return {sentence("a batch of ", fits, " would fit"), {"batch"}};
}

Advice what_can_be_found(const FutileSearch& f) {
  const MemoryLimit& limit = *f.request.limit;
  if (f.fits_if_chosen()) {
    return {
        "it would fit if what is recomputed and offloaded were chosen; leave those settings out",
        {"recompute", "offload"}};
  }
  const Advice threads = threads_to_search(f);
  const bool same_batch = limit.batch_is_fixed || offloads(f.run.plans.step);
  const Advice advice = all_of(threads, same_batch ? Advice{} : batch_to_search(f));
  if (advice) return advice;
  if (limit.batch_is_fixed) {
    const int64_t rows = f.run.config.loss_chunk;
    return {sentence("a run that resumes keeps its batch, and its chunks of the loss (",
                     rows ? sentence(rows, " rows") : "all rows", ")")};
  }
  return smaller_steps(f.run.config, limit.batch_is_fixed, [&](int64_t batch, int64_t seq) {
    return f.fits(with_rows(f.run.config, batch, seq), f.machine);
  });
}

void check_search(const PlannedRun& run, const RunRequest& request, const Machine& machine) {
  if (run.search->fits) return;
  Advice advice = what_can_be_found({run, request, machine});
  advice.settings.insert(advice.settings.begin(), "memory");
  fail_memory({.what = "the smallest plan of this run",
               .needed = run.foretold.memory.peak,
               .available = run.limit,
               .place = run.limit == request.limit->budget ? "in the budget" : "on the device",
               .advice = sentence("its peak is in ", run.search->found.binding, "; ", advice.text),
               .settings = advice.settings});
}

void check_host(const Report& foretold, const MemoryLimit& limit) {
  const bool shared = limit.device->type == DeviceType::cpu;  // the device's memory is the host's
  const size_t available = shared ? limit.most : host_memory();
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
  if (run.search) check_search(run, request, machine);
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
  if (!limit.device) return;
  check_limit("on the device", limit.most);
  check_host(run.foretold, limit);
}

}  // namespace

size_t free_memory(Device device) {
  const size_t all = device_memory(device);
  if (device.type != DeviceType::cpu) return all;
  return std::min(all, available_host_memory()) / 10 * 9;
}

size_t expected_besides(const Machine& machine) {
  constexpr size_t of_libraries = size_t{24} << 20, of_a_thread = size_t{2} << 20;
  const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture);
  if (!cpu) return 0;
  return resident_memory() + of_libraries + of_a_thread * static_cast<size_t>(cpu->threads);
}

MemoryLimit memory_limit(Device device, size_t budget, const Machine& machine) {
  const size_t besides = expected_besides(machine), all = device_memory(device);
  const size_t most = all - std::min(all, besides);
  return {.device = device,
          .budget = std::min(budget, most),
          .free = std::min(free_memory(device), most),
          .most = most,
          .besides = besides};
}

std::string lowered_budget(size_t asked, const MemoryLimit& limit) {
  if (asked <= limit.most) return {};
  return sentence("the budget of ", format_bytes(asked), " is more than the ",
                  format_bytes(limit.most), " that the ", limit.device ? "device" : "machine",
                  " has for it, and becomes that");
}

std::string warn_of_memory(const PlannedRun& run, const MemoryLimit& limit) {
  if (!limit.device || limit.device->type != DeviceType::cpu) return {};
  const Report& foretold = run.foretold;
  const size_t expected = foretold.memory.peak + foretold.host.peak + limit.besides;
  const size_t available = available_host_memory();
  if (run.refusal || expected <= available) return {};
  return sentence("this run is expected to take ", format_bytes(expected),
                  " of memory in all, and ", format_bytes(available),
                  " is available now: other programs may be swapped out, or one be killed");
}

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
