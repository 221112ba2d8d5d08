#include "spool/models/calibration/calibration.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>

#include "spool/planner/machines/device_identity.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// Keeps an unusable table under another name.
DeviceTable open_table(const fs::path& file, const DeviceIdentity& device,
                       const CalibrationRequest& request) {
  if (file.empty()) return {.device = device};
  try {
    return load_table(file, device);
  } catch (const Error& error) {
    const fs::path aside = file.string() + ".unread";
    std::error_code status;
    fs::rename(file, aside, status);
    request.say(sentence(error.what(), status ? "" : "; it is now " + aside.string(),
                         ", and kernels are measured again"));
    return {.device = device};
  }
}

// Keeps what other runs have stored meanwhile, unless it is replaced.
void store_table(const DeviceTable& table, const CalibrationRequest& request, Calibration& found) {
  if (found.file.empty()) return;
  try {
    DeviceTable whole = table;
    const DeviceTable stored = load_table(found.file, table.device);
    for (const auto& [ranks, link] : stored.links) add_link(whole, ranks, link, Renewal::replace);
    if (request.renewal != Renewal::replace) add_kernels(whole, stored.kernels, Renewal::keep);
    save_table(found.file, whole);
  } catch (const Error& error) {
    request.say(sentence("measured kernels are not kept for the next start: ", error.what()));
    found.file.clear();
  }
}

class Calibrator {
 public:
  Calibrator(const CalibrationRequest& request, Calibration& found)
      : request_(request), found_(found) {
    const auto probe = open_stream(request.device, Arena::granule, request.threads);
    found.machine = {.name = probe->description(), .architecture = probe->architecture()};
    found.table.measured = describe(*probe);
    found.products = use_tuned_products(*probe, request.products);
    const DeviceIdentity device = identify(*probe, request.dtype, found.products);
    if (!request.folder.empty()) found.file = table_file(request.folder, device);
    table_ = open_table(found.file, device, request);
  }

  void measure() {
    if (!is_of_use()) {
      found_.machine = known_machine();
      return report();
    }
    measure_rates();
    measure_disk_rate();
    measure_kernels_of_sample();
    if (changed_) store_table(table_, request_, found_);
    report();
  }

 private:
  // A sample to measure, unless the table has its kernels.
  struct Chosen {
    const MeasurableWork& sample;
    WorkKernels kernels;
    std::optional<Layout> layout = {};
    bool is_known = false;
  };

  // Asks the request only if something would be measured.
  bool is_of_use() {
    if (request_.renewal != Renewal::keep) return true;
    const bool has_rates = table_.rates && has_disk_rate();
    return (has_rates && !wanted_sample(known_machine())) || request_.is_of_use(known_machine());
  }

  Machine known_machine() const {
    Machine machine = table_.rates.value_or(Machine{});
    machine.name = found_.machine.name;
    machine.architecture = found_.machine.architecture;
    return machine;
  }

  std::string disk_directory() const { return fs::absolute(request_.disk).lexically_normal(); }

  bool has_disk_rate() const {
    return request_.disk.empty() || table_.disks.contains(disk_directory());
  }

  // If this fails, a run continues without the times of its kernels.
  void measure_kernels_of_sample() {
    try {
      needed_ = distinct(rehearse_kernels(request_.work, found_.machine).launches);
      if (std::optional<Chosen> chosen = wanted_sample(found_.machine)) {
        measure_sample(std::move(*chosen));
      }
    } catch (const Error& error) {
      if (request_.renewal != Renewal::keep) throw;
      request_.say(sentence("kernels could not be measured, and are foretold from the machine's ",
                            "rates: ", error.what()));
    }
  }

  void measure_rates() {
    if (!table_.rates || request_.renewal == Renewal::replace) {
      table_.rates = measure_machine(request_.device, request_.dtype, request_.threads);
      table_.rates->name.clear();
      changed_ = true;
    }
    found_.machine = known_machine();
  }

  void measure_disk_rate() {
    if (request_.disk.empty()) return;
    double& rate = table_.disks[disk_directory()];
    if (rate == 0 || request_.renewal == Renewal::replace) {
      rate = measure_disk(request_.disk);
      changed_ = true;
    }
    found_.machine.disk_bytes_per_second = rate;
  }

  bool is_wanted(const KernelTime& k) const {
    return request_.renewal != Renewal::keep ||
           !std::ranges::binary_search(table_.kernels, k, before);
  }

  bool is_known(const WorkKernels& kernels) const {
    return std::ranges::none_of(kernels.launches, [&](const auto& k) { return is_wanted(k); });
  }

  bool fits_on_host(const WorkKernels& kernels) const {
    const size_t shared = request_.device.type == DeviceType::cpu ? kernels.peak : 0;
    return kernels.host_peak == 0 || kernels.host_peak + shared <= device_memory({DeviceType::cpu});
  }

  double max_seconds() const {
    constexpr double unlimited = std::numeric_limits<double>::infinity();
    return request_.renewal == Renewal::keep ? request_.seconds : unlimited;
  }

  // Lays the sample out if that is needed, or takes less.
  bool fits(Chosen& chosen, const Machine& rates) const {
    WorkKernels& kernels = chosen.kernels;
    const size_t available = std::min(request_.free, device_memory(request_.device));
    const size_t limit = request_.memory ? std::min(request_.memory, available) : available;
    constexpr size_t saved = 2;  // a layout takes more than one half of what best fit takes
    constexpr double runs = 2;   // one to warm up
    if (runs * kernels.seconds > max_seconds()) return false;
    if (!fits_on_host(kernels) || kernels.peak / saved > limit) return false;
    if (kernels.peak > limit || request_.memory == 0) {
      chosen.layout = chosen.sample.lay_out(rates);
      kernels = rehearse_kernels(chosen.sample, rates, chosen.layout);
    }
    return kernels.peak <= limit;
  }

  // The first sample that fits; nothing if the table has its kernels, or those of one before it.
  // It is chosen by the rates alone, which do not change, so that a second start chooses it, too.
  std::optional<Chosen> wanted_sample(const Machine& rates) const {
    for (const MeasurableWork& sample : request_.samples) {
      Chosen chosen{.sample = sample, .kernels = rehearse_kernels(sample, rates)};
      if (is_known(chosen.kernels)) return {};
      if (fits(chosen, rates)) return chosen;
    }
    return {};
  }

  void measure_sample(Chosen chosen) {
    constexpr double long_time = 2;  // seconds of a run
    if (chosen.kernels.seconds > long_time) {
      request_.say("measuring the kernels of a step, which takes a few steps' time");
    }
    const auto stream = open_stream(request_.device, chosen.kernels.peak, request_.threads);
    use_matmul_algorithms(*stream, found_.products);
    MeasuredKernels measured = measure_kernels(
        chosen.sample, std::move(chosen.layout), std::move(chosen.kernels), *stream,
        {.seconds = max_seconds(),
         .late = [&](int runs, double seconds) { say_it_ended_early(runs, seconds); }});
    table_.event_seconds = measured.event_seconds;
    std::vector<KernelTime> times = distinct(std::move(measured.launches));
    std::erase_if(times, [&](const KernelTime& k) { return !is_wanted(k); });
    add_kernels(table_, times, request_.renewal);
    found_.measured = times.size();
    changed_ = true;
  }

  void say_it_ended_early(int runs, double seconds) {
    request_.say(fmt::format(
        "measuring ended after {} step{}, in {}: what is measured of a busy machine can "
        "be too long, and spool calibrate measures again",
        runs, runs == 1 ? "" : "s", format_seconds(seconds)));
  }

  void report() {
    table_.measured = std::move(found_.table.measured);
    found_.table = table_;
    found_.machine.kernels = std::make_shared<KernelTimes>(table_.kernels);
    found_.machine.mesh = nominal_machine(found_.machine).mesh;
    for (KernelTime& k : needed_) {
      const double* seconds = found_.machine.kernels->find(k.name.c_str(), k.cost);
      k.seconds = seconds ? *seconds : kernel_seconds(found_.machine, k.name.c_str(), k.cost);
      (seconds ? found_.kernels : found_.unmeasured).push_back(std::move(k));
    }
  }

  const CalibrationRequest& request_;
  Calibration& found_;
  DeviceTable table_;
  std::vector<KernelTime> needed_;  // by the work
  bool changed_ = false;
};

}  // namespace

Calibration calibrate(const CalibrationRequest& request) {
  const double start = host_clock();
  Calibration found;
  Calibrator(request, found).measure();
  found.seconds = host_clock() - start;
  if (found.measured > 0) {
    request.say(fmt::format("{} kernels of the step were measured, in {}", found.measured,
                            format_seconds(found.seconds)));
  }
  return found;
}

}  // namespace spool
