// Public: one of the headers of docs/public-headers.md.
#pragma once

// The units of parameters that may live on the host (autograd/homes.h): what is decided about them
// together, and by hand.

#include "spool/autograd/program.h"

namespace spool {

// The units of a program, with all of them on the device and nothing fetched ahead: the parameters
// that a block alone reads; those that only nodes before the first block, between two or after the
// last one read.  A parameter that is read on both sides of a block, as by an embedding and a head
// that are tied, is in none.  Of a program without blocks, those that one node alone reads.
std::vector<PlannedUnit> units_of(const Program&);

// What of the units is away, as it is set by hand.
struct HomesByHand {
  size_t bytes_on_device = 0;  // of the units' parameters so many stay on the device, at most
  UpdateTime update = UpdateTime::end;
  int ahead = 1;               // how many units that are away are fetched before they are needed
  double units_leaving = 0.8;  // Plan::units_leaving
};

// Gives the plan the program's units.  Parameters and gradients of all are away, but for those that
// stay: first what is much larger or smaller than most, as an embedding and a head are, whose
// copies have little to hide under; then as many others as fit, evenly spaced, so that each copy
// has the time of the units between.
// State on the device becomes streamed where what is trained is away.
void place_homes(Plan&, const Program&, const HomesByHand&);

}  // namespace spool
