#pragma once

// What a device can do, measured on it: the rates of a large matrix product and of a large copy,
// and the cost of a launch.  Takes about a quarter of a second, and at most 64 MiB beside any
// budget.

#include "spool/runtime/device.h"

namespace spool {

Machine measure_machine(Device, int threads = 0);

}  // namespace spool
