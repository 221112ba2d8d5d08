// Public: one of the headers of docs/public-headers.md.
#pragma once

// Measures the speed of a device: the rates of a large matrix product in one type (the other types
// get the same), of a large copy within its memory and of copies to and from the host, and the cost
// of a launch.  Each is repeated until its minimum is confirmed.  Takes about a quarter of a
// second, and 64 MiB of memory on a cpu, or 1 GiB of a GPU and 64 MiB of its host.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

// Seconds of work of an idle stream; subtract two calls to time what ran in between.  On a cpu it
// is the processor time of its threads divided by their number, which other programs hardly change;
// on other devices it is wall time.
double work_clock(Stream&);

// The smallest time that another one, at most a quarter longer, confirms; the longest if there is
// none.  The clock of a virtual machine may, rarely, miss most of an interval.
double confirmed_min(std::vector<double> seconds);

// The extent of the largest square product, a power of two, that is measured in so many bytes:
// three matrices of the type, and a workspace.
int64_t largest_product(DType, size_t bytes);

// Throws if the device does not exist.
Machine measure_machine(Device, DType of_products, int threads = 0);

// Bytes per second of writing a 16 MiB file in this directory and reading it back.  Throws if the
// file cannot be created.
double measure_disk(const std::string& directory);

// A machine from its data sheet, to rehearse for without having it: one of machine_names(), or
// ranks on several: "8xh200" has a rank on each device of a machine of eight, "2x8xh200" of two of
// them.  Nothing if it is no such name.  Its own name is that of a device.
std::optional<Machine> named_machine(std::string_view name);
// What is wrong with the numbers before a device's name ("0xh200"), for an error that begins with
// the name; empty if they, or the device, are not what is wrong.
std::string fault_of_numbers(std::string_view name);
// Bytes of a device's memory by the data sheet; drivers leave at least this much free.
std::optional<size_t> memory_of_named_machine(std::string_view name);
std::vector<std::string> machine_names();

// A machine of the same kind by a clock that no measurement enters: for a GPU the data sheet of the
// nearest compute capability, with the link of a machine that is not here; for a cpu fixed rates,
// of bf16 by how it multiplies that.  It has the same ranks, by links that were not measured.  It
// decides what changes the order of sums, so that losses do not depend on what was measured.
Machine nominal_machine(const Machine&);

}  // namespace spool
