// Ranks tell each other in JSON what to measure and, as tables, what they measured.

#include "spool/models/calibration/measuring.h"

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "spool/planner/machines/machine.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/ranks/measure_link.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr const char* next_measurement = "the next measurement";
constexpr const char* what_was_measured = "what was measured";

bool has_ranks(const CalibrationRequest& request) { return request.ranks > 1; }

void measure_sample(DeviceTable& table, const Measuring& next, const CalibrationRequest& request,
                    const MatmulAlgorithms& products, const Machine& machine) {
  const MeasurableWork& sample = request.samples.at(next.sample);
  std::optional<Layout> layout;
  if (next.is_laid_out) layout = sample.lay_out(machine);
  WorkKernels kernels = rehearse_kernels(sample, machine, layout);
  const auto stream = open_stream(request.device, kernels.peak, request.threads);
  use_matmul_algorithms(*stream, products);
  const auto say_it_ended_early = [&](int runs, double seconds) {
    request.say(fmt::format(
        "measuring ended after {} step{}, in {}: what is measured of a busy machine can "
        "be too long, and spool calibrate measures again",
        runs, runs == 1 ? "" : "s", format_seconds(seconds)));
  };
  MeasuredKernels measured =
      measure_kernels(sample, std::move(layout), std::move(kernels), *stream,
                      {.seconds = max_seconds(request), .late = say_it_ended_early});
  table.event_seconds = measured.event_seconds;
  table.kernels = distinct(std::move(measured.launches));
}

DeviceTable measure_alone(const Measuring& next, const CalibrationRequest& request,
                          const MatmulAlgorithms& products, const Machine& machine) {
  DeviceTable table;
  if (next.what == Measured::rates) {
    table.rates = measure_machine(request.device, request.dtype, request.threads);
    table.rates->name.clear();
  } else if (next.what == Measured::disk) {
    table.disks["measured"] = measure_disk(request.disk);
  } else if (next.what == Measured::link) {
    Communicator& own = *request.own_rank;
    table.links[link_key(machine, own.kind())] = measure_link(own);
  } else {
    measure_sample(table, next, request, products, machine);
  }
  return table;
}

// What a rank measured, or why it could not, as all ranks get it.
std::vector<std::string> measured_by_all(const Measuring& next, const CalibrationRequest& request,
                                         const MatmulAlgorithms& products, const Machine& machine) {
  std::string own;
  try {
    own = to_text(measure_alone(next, request, products, machine));
  } catch (const RankEnded&) {
    throw;
  } catch (const Error& error) {
    own = json(error.what()).dump();
  }
  return request.own_rank->gather(what_was_measured, own);
}

DeviceTable slowest(const std::vector<std::string>& all) {
  std::optional<DeviceTable> slowest;
  for (size_t r = 0; r < all.size(); ++r) {
    const JsonField text = parse_json(all[r], what_was_measured);
    if (text.is_string()) throw Error(ErrorKind::device, sentence("rank ", r, ": ", text.string()));
    DeviceTable table = table_from_text(all[r], what_was_measured);
    if (slowest) {
      take_slowest(*slowest, table);
    } else {
      slowest = std::move(table);
    }
  }
  return *std::move(slowest);
}

// The machine as the first rank knows it, so that all lay out a sample alike.
Machine with_rates_of(const JsonField& told, Machine machine) {
  const DeviceTable table = table_from_text(told.member("table").string(), next_measurement);
  if (!table.rates) return machine;
  Machine known = *table.rates;
  known.name = machine.name;
  known.architecture = machine.architecture;
  known.mesh = machine.mesh;
  return known;
}

}  // namespace

double max_seconds(const CalibrationRequest& request) {
  constexpr double unlimited = std::numeric_limits<double>::infinity();
  return request.renewal == Renewal::keep ? request.seconds : unlimited;
}

DeviceTable measure_on_ranks(const Measuring& next, const CalibrationRequest& request,
                             const MatmulAlgorithms& products, const Machine& machine) {
  if (!has_ranks(request)) return measure_alone(next, request, products, machine);
  const json told{{"what", name(next.what)},
                  {"sample", next.sample},
                  {"is_laid_out", next.is_laid_out},
                  {"table", to_text({.rates = machine})}};
  request.own_rank->gather(next_measurement, told.dump());
  return slowest(measured_by_all(next, request, products, machine));
}

void end_measuring(const CalibrationRequest& request, const DeviceTable& table) {
  const json told{{"what", name(Measured::nothing)}, {"table", to_text(table)}};
  if (has_ranks(request)) request.own_rank->gather(next_measurement, told.dump());
}

DeviceTable measure_as_told(const CalibrationRequest& request, const MatmulAlgorithms& products,
                            const Machine& machine) {
  while (true) {
    const std::string text = request.own_rank->gather(next_measurement, "").front();
    const JsonField told = parse_json(text, next_measurement);
    const std::string what = told.member("what").string();
    if (what == name(Measured::nothing)) {
      return table_from_text(told.member("table").string(), next_measurement);
    }
    const Measuring next{.what = told.member("what").enumerator<Measured>(),
                         .sample = told.member("sample").integer<size_t>(),
                         .is_laid_out = told.member("is_laid_out").boolean()};
    measured_by_all(next, request, products, with_rates_of(told, machine));
  }
}

}  // namespace spool
