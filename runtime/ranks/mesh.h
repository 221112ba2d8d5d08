#pragma once

// How the ranks that train one model together are arranged, and the links between them.

#include <cstddef>

namespace spool {

// An exchange takes `seconds`, and its bytes at this rate: as many can come in as go out meanwhile.
struct Link {
  double seconds = 8e-6;
  double bytes_per_second = 20e9;  // each way
  bool operator==(const Link&) const = default;
};

struct Mesh {
  int ranks = 0;  // 0: one stream computes alone, and exchanges nothing
  int rank = 0;   // this one, counted from 0
  Link link = {};
  // Ranks of one machine, and the link between machines; 0: all are on one.
  int ranks_of_machine = 0;
  Link between_machines = {.seconds = 20e-6, .bytes_per_second = 50e9};

  int machine_of(int r) const { return ranks_of_machine > 0 ? r / ranks_of_machine : 0; }
};

}  // namespace spool
