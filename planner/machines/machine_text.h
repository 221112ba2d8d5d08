// Public: one of the headers of docs/public-headers.md.
#pragma once

// Reads a text that says which machine to plan for, when it need not be here:
//
//   h200                                   a GPU by its data sheet
//   rtx4090,400GiB                         with other memory
//   h100,link=6GB/s                        with another link to its host, each way
//   8xh200                                 a rank on each GPU of a machine of eight
//   2x8xh200                               of two such machines
//   8xh200,ranks=450GB/s                   with another link between a machine's ranks, each way
//   cpu:16,avx512,3.5GHz,80GB/s            threads, instruction set, clock, bandwidth of memory
//   cpu:16,avx512,3.5GHz,80GB/s,64GiB      with as much memory
//   cpu:8,avx512,2GHz,40GB/s,one-port      that issues one operation of 512 bits a cycle, not two
//   gpu.json                               the file of a measured device (device_table.h)

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "spool/planner/machines/links.h"
#include "spool/runtime/device.h"

namespace spool {

// A machine that need not be here.  The host of a cpu is the cpu itself.
struct AbsentMachine {
  Machine machine = {};               // its name is the text of one device, or a measured one's
  std::optional<size_t> memory = {};  // bytes of its device; none: not known
  std::optional<size_t> host_memory = {};    // bytes of a GPU's host; none: not known
  std::map<std::string, double> disks = {};  // bytes per second, by directory
  Links links = {};                          // that were measured between ranks there
};

// Throws an error that names what is wrong and what would be right: of the setting "machine", or of
// the file and its field.
AbsentMachine machine_from_text(const std::string& text);
// Ranks of a number that a setting gives, or 0: those of the machine's name, if it has some.  They
// exchange by a link that was measured there (use_measured_link()), on a cpu by this backend, or
// else by a nominal one.  Throws if both say a number, and these differ.
std::string give_ranks(AbsentMachine&, int ranks, const std::string& of_cpu = "threads");
// Bytes of the host for what leaves the device: half of a measured GPU's host, or twice what a GPU
// of a data sheet has; of a cpu, half of its own.
size_t host_bytes_of(const AbsentMachine&);
// Whether the text means a file: no machine has this name, and it names one in JSON or a place in
// folders, or something that exists.
bool is_machine_file(const std::string& text);

// What the text of a cpu has, with an example; for errors.
inline constexpr const char* text_of_a_cpu =
    "cpu:THREADS,ISA,GHZ,BANDWIDTH[,MEMORY], such as cpu:16,avx512,3.5GHz,80GB/s,64GiB";

}  // namespace spool
