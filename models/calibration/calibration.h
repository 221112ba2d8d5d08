#pragma once

// Gives rehearsals the clock of a device: its rates, and the seconds of the kernels of some work,
// from the table in the user's cache (planner/machines/), after measuring what the table lacks.
// Ranks that compute on a machine at once measure at once, too, and the link between them: so many
// ranks have a table of their own.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/models/calibration/work_kernels.h"
#include "spool/planner/machines/device_table.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {

struct CalibrationRequest {
  Device device = {};
  int threads = 0;  // of a cpu; 0: one per usable core
  // Ranks that compute on this machine at once, of which this is one; 0: one stream alone.  With
  // more than one, but without their communicator, they are threads that are started to measure.
  int ranks = 0;
  std::shared_ptr<Communicator> own_rank = {};
  DType dtype = DType::f32;  // of products
  // Maximum device bytes for measuring; 0: what the sample, laid out, takes, as far as the device
  // has it free.
  size_t memory = 0;
  size_t free = MetaStream::unlimited;  // free bytes of the device
  // The work whose time is foretold, and what may be measured for it: the first sample that fits
  // into the memory and, with Renewal::keep, twice into the time.
  MeasurableWork work = {};
  std::vector<MeasurableWork> samples = {};
  // The table by which a run that resumes computes products on a GPU; none: that of the user's
  // cache (planner/machines/matmul_table.h).
  std::optional<MatmulAlgorithms> products = {};
  Renewal renewal = Renewal::keep;    // keep: measures only what the table lacks
  std::filesystem::path disk = {};    // a directory to measure; empty: none
  std::filesystem::path folder = {};  // of the table; empty: it is not stored
  // With Renewal::keep, measuring ends before a run of the sample that would exceed this time.
  double seconds = 60;
  // Called before anything is measured, with the device's rates as far as they are known.  If it
  // returns false, nothing is measured, and the machine has these rates.
  std::function<bool(const Machine&)> is_of_use = [](const Machine&) { return true; };
  // Called with messages for the user.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

// On other ranks than the first: what the machine is, and the table for products.
struct Calibration {
  Machine machine = {};
  std::string link = {};  // what the ranks exchange by, as their link was measured (links.h)
  // The kernels of the work, without repetitions: measured, or foretold by the machine's rates,
  // scaled as what was measured.
  std::vector<KernelTime> kernels = {}, unmeasured = {};
  MatmulAlgorithms products = {};   // the table by which products were measured, if any
  DeviceTable table = {};           // of the device, all that is known; and what the device is
  std::filesystem::path file = {};  // the table's; empty: it is not stored
  size_t measured = 0;              // number of kernels that were measured
  double seconds = 0;               // duration of the measurements
};

// With ranks all of them call it at the same place of their programs, with the same work.
Calibration calibrate(const CalibrationRequest&);

}  // namespace spool
