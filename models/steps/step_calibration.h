#pragma once

// Gives a rehearsal the clock of a device: rates, and what the kernels of a step take, from the
// table in the user's cache (planner/calibration/), after measuring what the table lacks.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "spool/models/steps/step_kernels.h"
#include "spool/models/steps/step_request.h"
#include "spool/planner/calibration/device_table.h"

namespace spool {

struct CalibrationRequest {
  Device device = {};
  int threads = 0;  // of a cpu; 0: one per usable core
  // Most bytes of the device that measuring a step may take; 0: what a run of it would, laid out,
  // as far as the device has it free.
  size_t memory = 0;
  size_t free = MetaStream::unlimited;  // bytes that the device has free
  // The step, and plans for it: the kernels are those of the first plan that fits.
  StepDescription step = {};
  std::vector<StepPlans> plans = {};
  Renewal renewal = Renewal::keep;    // keep: measures only what the table lacks
  std::filesystem::path disk = {};    // a directory to measure; empty: none
  std::filesystem::path folder = {};  // of the table; empty: it is not kept
  // Measuring a step that is kept ends once it has taken so long, and three steps.
  double seconds = 60;
  // Is asked before anything is measured, by the device's rates as far as they are known, whether
  // it is of use; if not, nothing is, and the machine has these rates.
  std::function<bool(const Machine&)> is_of_use = [](const Machine&) { return true; };
  // Is given sentences for the user.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct Calibration {
  Machine machine = {};
  // The kernels of the step, each once: with their times, or as foretold where no plan fits.
  std::vector<KernelTime> kernels = {}, unmeasured = {};
  std::filesystem::path file = {};  // the table's; empty: it is not kept
  size_t measured = 0;              // number of kernels that were measured
  double seconds = 0;               // that measuring took
};

Calibration calibrate(const CalibrationRequest&);

// Of a step on a device: for the request's plan, if it has one, then for those of its policy, with
// the table in the user's cache.
CalibrationRequest calibration_of(const StepDescription&, const StepRequest&, Device, int threads);

// Plans that launch the same kernels in less and less memory, but for the last one's optimizer: the
// policy's, and with its chunks recompute all, and recompute all with the state streamed.
std::vector<StepPlans> calibration_plans(const StepDescription&, const Policy&);

}  // namespace spool
