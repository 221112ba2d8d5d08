#pragma once

// A table of measurements of a device: its rates, and the seconds of kernels.  It is a file in the
// user's cache, so each kernel is measured once and two starts of a run foretell the same:
//
//   {
//     "spool_kernels": 1,
//     "device": {"build": ..., "device": "cpu", "libraries": ..., "processor": ..., ...},
//     "rates": {"bytes_per_second": 2.1e10, ...},
//     "event_seconds": 2.1e-6,
//     "disks": {"/tmp": 1.2e9},
//     "links": [{"backend": "threads", "ranks": 4, "machines": 1, "seconds": ...,
//                "bytes_per_second": ...}, ...],             between ranks, if any was measured
//     "kernels": [{"name": "matmul", "dtype": "f32", "flops": ..., "bytes": ..., "seconds": ...},
//                 ...]
//   }
//
// Equal tables have equal files.  One that is for planning elsewhere (machine_text.h) says more, in
// a member of this file:
//
//     "machine": {"name": "cpu (2 threads)", "memory": 25769803776, "host_memory": 25769803776,
//                 "cpu": {"threads": 2, "bf16_products": "pairs"}},
//
// or "cuda": {"major": 9, "minor": 0, "fused_attention": true}.  Where ranks share the machine, it
// is one rank's part, and "ranks": 4 says of how many.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spool/planner/machines/links.h"
#include "spool/runtime/meta/kernel_times.h"
#include "spool/runtime/stream.h"

namespace spool {

// What distinguishes a device whose speed may differ, as pairs of a name and a value.
using DeviceIdentity = std::map<std::string, std::string>;

// What plans for a device depend on besides its speed.
struct MeasuredDevice {
  std::string name = {};
  Architecture architecture = {};
  size_t memory = 0, host_memory = 0;  // bytes; a cpu is its own host
  int ranks = 0;  // that share the machine, of which this is one's part; 0: it is the whole
};
// One of so many ranks that share the machine, if there are any.
MeasuredDevice describe(const Stream&, int ranks = 0);

struct DeviceTable {
  DeviceIdentity device = {};
  std::optional<Machine> rates = {};  // without name, architecture and kernels
  double event_seconds = 0;           // of a pair of timed events, which kernels' times are free of
  std::map<std::string, double> disks = {};  // by directory, bytes per second
  Links links = {};
  std::vector<KernelTime> kernels = {};  // without repetitions, in the order of before()
  std::optional<MeasuredDevice> measured = {};
};

// What a new measurement does to the table's entry for the same kernel.
enum class Renewal : uint8_t { keep, lower, replace };
template <>
inline constexpr std::array enumerator_names<Renewal>{"keep", "lower", "replace"};

// Adds the kernels to the table; none may be given twice.
void add_kernels(DeviceTable&, const std::vector<KernelTime>&, Renewal);

// Adds a link to the table; Renewal::lower keeps the smaller latency and the larger rate.
void add_link(DeviceTable&, const LinkKey&, const Link&, Renewal);

// Takes what another rank has measured of the same: of each rate and kernel the slower one.
// Throws if it measured something else.
void take_slowest(DeviceTable&, const DeviceTable& other);

// A table as it is in its file; to and from a text, which a rank gives another.
std::string to_text(const DeviceTable&);
DeviceTable table_from_text(const std::string&, const std::string& name);
// Returns a table without entries if there is no file.  Throws, naming the file and the field, if
// the file is damaged or is the table of another device.
DeviceTable load_table(const std::filesystem::path&, const DeviceIdentity&);
// The table of any device, with its rates and what it is: to plan for it.  Throws likewise, and if
// there is no file.
DeviceTable load_table_of_any_device(const std::filesystem::path&);
// Whether the file is a table that this program can read, of any device.
bool is_table(const std::filesystem::path&);
// Creates the folder; throws if the file cannot be written.
void save_table(const std::filesystem::path&, const DeviceTable&);
// Adds a link to the file of this device's table, with what others have stored there meanwhile.
// Throws as load_table() and save_table() do.
void store_link(const std::filesystem::path&, const DeviceIdentity&, const LinkKey&, const Link&,
                Renewal);

}  // namespace spool
