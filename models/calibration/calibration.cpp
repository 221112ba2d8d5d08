#include "spool/models/calibration/calibration.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "spool/models/calibration/measuring.h"
#include "spool/planner/machines/device_identity.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/runtime/ranks/run_ranks.h"
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
    for (const auto& [ranks, link] : stored.links) add_link(whole, ranks, link, Renewal::keep);
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
    found.table.measured = describe(*probe, ranks());
    found.products = use_tuned_products(*probe, request.products);
    if (!leads()) return;
    const DeviceIdentity device = identify(*probe, request.dtype, found.products, ranks());
    if (!request.folder.empty()) found.file = table_file(request.folder, device);
    table_ = open_table(found.file, device, request);
  }

  void measure() {
    if (!leads()) {
      give_ranks(found_.machine);
      table_ = measure_as_told(request_, found_.products, found_.machine);
    }
    found_.machine = known_machine();
    if (leads() && is_of_use()) {
      measure_rates();
      measure_disk_rate();
      measure_link_of_ranks();
      measure_kernels_of_sample();
      if (changed_) store_table(table_, request_, found_);
    }
    if (leads()) end_measuring(request_, table_);
    report();
  }

 private:
  // A sample to measure, unless the table has its kernels.
  struct Chosen {
    size_t sample = 0;
    WorkKernels kernels;
    bool is_laid_out = false;
  };

  int ranks() const { return request_.ranks > 1 ? request_.ranks : 0; }
  bool leads() const { return ranks() == 0 || request_.own_rank->rank() == 0; }
  std::string exchanged_by() const { return ranks() > 0 ? request_.own_rank->kind() : ""; }

  // Asks the request only if something would be measured.
  bool is_of_use() {
    if (request_.renewal != Renewal::keep) return true;
    const bool has_rates = table_.rates && has_disk_rate() && has_link();
    return (has_rates && !wanted_sample(known_machine())) || request_.is_of_use(known_machine());
  }

  Machine known_machine() const {
    Machine machine = table_.rates.value_or(Machine{});
    machine.name = found_.machine.name;
    machine.architecture = found_.machine.architecture;
    give_ranks(machine);
    return machine;
  }

  std::string give_ranks(Machine& machine) const {
    machine.mesh = nominal_machine(machine).mesh;
    machine.mesh.ranks = request_.ranks;
    if (request_.own_rank) machine.mesh.rank = request_.own_rank->rank();
    return use_measured_link(machine, table_.links, exchanged_by());
  }

  std::string disk_directory() const { return fs::absolute(request_.disk).lexically_normal(); }

  bool has_disk_rate() const {
    return request_.disk.empty() || table_.disks.contains(disk_directory());
  }

  bool has_link() const {
    return ranks() == 0 || table_.links.contains(link_key(known_machine(), exchanged_by()));
  }

  // All ranks measure it; the slowest of them counts.
  DeviceTable measured(const Measuring& what) {
    changed_ = true;
    return measure_on_ranks(what, request_, found_.products, known_machine());
  }

  // If this fails, a run continues without the times of its kernels.
  void measure_kernels_of_sample() {
    try {
      needed_ = distinct(rehearse_kernels(request_.work, found_.machine).launches);
      if (const std::optional<Chosen> chosen = wanted_sample(found_.machine)) {
        measure_sample(*chosen);
      }
    } catch (const RankEnded&) {
      throw;
    } catch (const Error& error) {
      if (request_.renewal != Renewal::keep) throw;
      request_.say(sentence("kernels could not be measured, and are foretold from the machine's ",
                            "rates: ", error.what()));
    }
  }

  void measure_rates() {
    if (!table_.rates || request_.renewal == Renewal::replace) {
      table_.rates = measured({.what = Measured::rates}).rates;
    }
    found_.machine = known_machine();
  }

  void measure_disk_rate() {
    if (request_.disk.empty()) return;
    double& rate = table_.disks[disk_directory()];
    if (rate == 0 || request_.renewal == Renewal::replace) {
      rate = measured({.what = Measured::disk}).disks.begin()->second;
    }
  }

  void measure_link_of_ranks() {
    if (ranks() == 0 || (request_.renewal == Renewal::keep && has_link())) return;
    const Links links = measured({.what = Measured::link}).links;
    for (const auto& [key, link] : links) {
      add_link(table_, key, link, request_.renewal);
      request_.say(sentence("the link between ", in_words(key, link)));
    }
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
    return kernels.host_peak == 0 ||
           of_all_ranks(kernels.host_peak + shared) <= device_memory({DeviceType::cpu});
  }

  size_t of_all_ranks(size_t bytes) const {
    return bytes * static_cast<size_t>(std::max(request_.ranks, 1));
  }

  // Lays the sample out if that is needed, or takes less.
  bool fits(Chosen& chosen, const Machine& rates) const {
    WorkKernels& kernels = chosen.kernels;
    size_t available = std::min(request_.free, device_memory(request_.device));
    if (request_.device.type == DeviceType::cpu) available /= of_all_ranks(1);
    const size_t limit = request_.memory ? std::min(request_.memory, available) : available;
    constexpr size_t saved = 2;  // a layout takes more than one half of what best fit takes
    constexpr double runs = 2;   // one to warm up
    if (runs * kernels.seconds > max_seconds(request_)) return false;
    if (!fits_on_host(kernels) || kernels.peak / saved > limit) return false;
    if (kernels.peak > limit || request_.memory == 0) {
      const MeasurableWork& sample = request_.samples[chosen.sample];
      kernels = rehearse_kernels(sample, rates, sample.lay_out(rates));
      chosen.is_laid_out = true;
    }
    return kernels.peak <= limit;
  }

  // The first sample that fits; nothing if the table has its kernels, or those of one before it.
  // It is chosen by the rates alone, which do not change, so that a second start chooses it, too.
  std::optional<Chosen> wanted_sample(const Machine& rates) const {
    for (size_t i = 0; i < request_.samples.size(); ++i) {
      Chosen chosen{.sample = i, .kernels = rehearse_kernels(request_.samples[i], rates)};
      if (is_known(chosen.kernels)) return {};
      if (fits(chosen, rates)) return chosen;
    }
    return {};
  }

  void measure_sample(const Chosen& chosen) {
    constexpr double long_time = 2;  // seconds of a run
    if (chosen.kernels.seconds > long_time) {
      request_.say("measuring the kernels of a step, which takes a few steps' time");
    }
    DeviceTable all = measured(
        {.what = Measured::kernels, .sample = chosen.sample, .is_laid_out = chosen.is_laid_out});
    table_.event_seconds = all.event_seconds;
    std::erase_if(all.kernels, [&](const KernelTime& k) { return !is_wanted(k); });
    add_kernels(table_, all.kernels, request_.renewal);
    found_.measured = all.kernels.size();
  }

  void report() {
    table_.measured = std::move(found_.table.measured);
    found_.table = table_;
    found_.machine.kernels = std::make_shared<KernelTimes>(table_.kernels);
    const bool has_disk = !request_.disk.empty() && has_disk_rate();
    if (has_disk) found_.machine.disk_bytes_per_second = table_.disks[disk_directory()];
    found_.link = give_ranks(found_.machine);
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

Calibration calibrate_by_threads(const CalibrationRequest& request) {
  Calibration of_first;
  run_ranks(request.ranks, [&](const std::shared_ptr<Communicator>& own) {
    CalibrationRequest of_rank = request;
    of_rank.own_rank = own;
    if (own->rank() > 0) of_rank.say = [](const std::string&) {};
    Calibration found = calibrate(of_rank);
    if (own->rank() == 0) of_first = std::move(found);
  });
  return of_first;
}

}  // namespace

Calibration calibrate(const CalibrationRequest& request) {
  if (request.ranks > 1 && !request.own_rank) return calibrate_by_threads(request);
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
