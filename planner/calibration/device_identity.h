#pragma once

// Which device a table is of, and where the tables are.

#include <filesystem>

#include "spool/planner/calibration/device_table.h"
#include "spool/runtime/stream.h"

namespace spool {

// Of the stream's device, for a machine whose rates are of products of this type: its model,
// driver, libraries and number of threads, and what built this program.
DeviceIdentity identify(const Stream&, DType of_products);

// The folder of the user's cache for Spool: $XDG_CACHE_HOME/spool, or ~/.cache/spool; empty if the
// environment names neither.
std::filesystem::path cache_folder();

// The file in the folder for the table of a device.
std::filesystem::path table_file(const std::filesystem::path& folder, const DeviceIdentity&);

}  // namespace spool
