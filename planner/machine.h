// Public: one of the headers of docs/public-headers.md.
#pragma once

// Measures what a device can do: the rates of a large matrix product in one type (the other types
// get the same), of a large copy within its memory, and of copies to and from the host, and the
// cost of a launch.  Each is the least of repeats until it stands.  Takes about a quarter of a
// second, and meanwhile 64 MiB of memory on a cpu, or 1 GiB of a GPU and 64 MiB of its host.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

// Seconds of work of a stream that has nothing left to do: the difference of two calls is what lies
// between.  On a cpu what processors worked for its threads, divided by their number, which other
// programs hardly change; on other devices the time that passed.
double work_clock(Stream&);

// The least of some times that another one confirms, being at most a quarter longer; the longest if
// there is none.  A clock of a virtual machine may, rarely, miss most of an interval.
double confirmed_min(std::vector<double> seconds);

// Throws if there is no such device.
Machine measure_machine(Device, DType of_products, int threads = 0);

// Bytes per second of writing a 16 MiB file in this directory and reading it back.  Throws if no
// file can be created there.
double measure_disk(const std::string& directory);

// A machine to rehearse for without having it, from its data sheet; nothing for any name but one of
// machine_names().
std::optional<Machine> named_machine(std::string_view name);
// Bytes of its memory, by the data sheet; a driver leaves at least as much.
std::optional<size_t> memory_of_named_machine(std::string_view name);
std::vector<std::string> machine_names();

}  // namespace spool
