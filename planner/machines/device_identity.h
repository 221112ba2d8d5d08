#pragma once

// Identifies a device for its table of measurements (device_table.h), and finds the table's file.

#include <filesystem>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/planner/machines/device_table.h"
#include "spool/runtime/stream.h"

namespace spool {

// The identity of the stream's device: its model, driver, libraries, number of threads and way to
// multiply bf16, and the build of this program.  `of_products`: the type of the matrix products
// that set its rates; `tuned`: the table of algorithms by which it computes products, if any;
// `ranks`: how many compute on the machine at once, which makes each of them slower.
DeviceIdentity identify(const Stream&, DType of_products, const MatmulAlgorithms& tuned = {},
                        int ranks = 0);

// The user's cache folder for Spool: $XDG_CACHE_HOME/spool, or ~/.cache/spool; empty if the
// environment names neither.
std::filesystem::path cache_folder();

// The file of the device's table in the folder.
std::filesystem::path table_file(const std::filesystem::path& folder, const DeviceIdentity&);

}  // namespace spool
