#pragma once

// Links between ranks: nominal ones, and measured ones, which a device's table keeps.

#include <compare>
#include <map>
#include <string>

#include "spool/runtime/device.h"

namespace spool {

// The ranks whose link was measured: by what they exchange ("threads", "sockets", "mpi", "nccl";
// Communicator::kind()), how many there are, and on how many machines.
struct LinkKey {
  std::string backend = {};
  int ranks = 0, machines = 1;
  auto operator<=>(const LinkKey&) const = default;
};
using Links = std::map<LinkKey, Link>;

// The nominal link of ranks that share a cpu's memory, of this rate.
Link link_by_memory(double bytes_per_second);

// "4 ranks by threads: 12 us, 4.1 GB/s each way".
std::string in_words(const LinkKey&, const Link&);

// Ranks on a machine that is not here, of a number that a setting gives: on GPUs, eight of them on
// a machine.  Throws if the machine's name says another number.
void set_ranks(Machine&, int ranks);

// Of the machine's ranks.
LinkKey link_key(const Machine&, const std::string& backend);
// Takes the link that was measured for the machine's ranks, if there is one: of this backend, or
// else of another.  It then is that of all messages, to ranks of the same machine and of others.
// Returns the backend that it was measured of, or nothing.
std::string use_measured_link(Machine&, const Links&, const std::string& backend);

}  // namespace spool
