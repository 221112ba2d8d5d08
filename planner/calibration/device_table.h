#pragma once

// What was measured of a device: its rates, and what kernels take.  It is kept in a file of the
// user's cache, so that kernels are measured once and two starts of a run foretell the same:
//
//   {
//     "spool_kernels": 1,
//     "device": {"build": ..., "device": "cpu", "libraries": ..., "processor": ..., ...},
//     "rates": {"bytes_per_second": 2.1e10, ...},
//     "disks": {"/tmp": 1.2e9},
//     "kernels": [{"name": "matmul", "dtype": "f32", "flops": ..., "bytes": ..., "seconds": ...},
//                 ...]
//   }
//
// Equal tables have equal files.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spool/runtime/meta/kernel_times.h"

namespace spool {

// What tells a device from others, as far as its speed depends on it, by name.
using DeviceIdentity = std::map<std::string, std::string>;

struct DeviceTable {
  DeviceIdentity device = {};
  std::optional<Machine> rates = {};         // without name, architecture and kernels
  std::map<std::string, double> disks = {};  // by directory, bytes per second
  std::vector<KernelTime> kernels = {};      // each once, in the order of before()
};

// What a new measurement does to an entry that a table has.
enum class Renewal : uint8_t { keep, lower, replace };
template <>
inline constexpr std::array enumerator_names<Renewal>{"keep", "lower", "replace"};

// Adds the kernels, each at most once, to those of the table.
void add_kernels(DeviceTable&, const std::vector<KernelTime>&, Renewal);

// Throws, naming the file and the field, if the file is damaged, or the table of another device; a
// table without entries if there is none.
DeviceTable load_table(const std::filesystem::path&, const DeviceIdentity&);
// Creates the folder; throws if the file cannot be written.
void save_table(const std::filesystem::path&, const DeviceTable&);

}  // namespace spool
