#pragma once

// Gives rehearsals the clock of a device: its rates, and the seconds of a step's kernels, from the
// table in the user's cache (planner/machines/), after measuring what the table lacks.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "spool/models/steps/step_kernels.h"
#include "spool/models/steps/step_request.h"
#include "spool/planner/machines/device_table.h"

namespace spool {

struct CalibrationRequest {
  Device device = {};
  int threads = 0;  // of a cpu; 0: one per usable core
  // Maximum device bytes for measuring a step; 0: what a run of it, laid out, would take, as far as
  // the device has it free.
  size_t memory = 0;
  size_t free = MetaStream::unlimited;  // free bytes of the device
  // The step, and plans for it: the first plan that fits is measured.
  StepDescription step = {};
  std::vector<StepPlans> plans = {};
  Renewal renewal = Renewal::keep;    // keep: measures only what the table lacks
  std::filesystem::path disk = {};    // a directory to measure; empty: none
  std::filesystem::path folder = {};  // of the table; empty: it is not stored
  // With Renewal::keep, measuring a step ends after this time, but not before three steps.
  double seconds = 60;
  // Called before anything is measured, with the device's rates as far as they are known.  If it
  // returns false, nothing is measured, and the machine has these rates.
  std::function<bool(const Machine&)> is_of_use = [](const Machine&) { return true; };
  // Called with messages for the user.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct Calibration {
  Machine machine = {};
  // The kernels of the step, without repetitions: measured, or foretold if no plan fits.
  std::vector<KernelTime> kernels = {}, unmeasured = {};
  std::filesystem::path file = {};  // the table's; empty: it is not stored
  size_t measured = 0;              // number of kernels that were measured
  double seconds = 0;               // duration of the measurements
};

Calibration calibrate(const CalibrationRequest&);

// The request for a step on a device: for the request's plan, if it has one, then for those of its
// policy, with the table in the user's cache.
CalibrationRequest calibration_of(const StepDescription&, const StepRequest&, Device, int threads);

// Plans that launch the same kernels in less and less memory, except the last one's optimizer: the
// policy's plan, that with everything recomputed, and that with the state streamed, too.
std::vector<StepPlans> calibration_plans(const StepDescription&, const Policy&);

}  // namespace spool
