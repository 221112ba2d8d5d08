#pragma once

// What a device can do, measured on it: the rate of a large matrix product in one type (the others
// are given the same), that of a large copy, within it and to the host, and the cost of a launch.
// Takes about a quarter of a second, and memory for as long, 64 MiB of a cpu, 1 GiB of a GPU and 64
// MiB of its host.

#include <filesystem>
#include <optional>
#include <string_view>

#include "spool/runtime/device.h"

namespace spool {

// Throws where there is no such device.
Machine measure_machine(Device, DType of_products, int threads = 0);

// Bytes a second of a file in this directory, written and read back, 16 MiB of it.  Throws where
// there can be none.
double measure_disk(const std::filesystem::path& directory);

// One that need not be there, to rehearse for: "h200", "a100-80g", "a100-40g"; nothing for any
// other name.
std::optional<Machine> named_machine(std::string_view name);

}  // namespace spool
