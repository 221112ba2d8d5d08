#pragma once

// Checks of a layout, whatever assigned its offsets.

#include "spool/runtime/memory/layout.h"

namespace spool::testing {

// Expects that allocations whose lives overlap do not share bytes, and that the sums are right.
void expect_apart(const Layout&);

// The bytes that a layout takes beyond the maximum of live bytes, as a fraction of these.
double waste(const Layout&);

}  // namespace spool::testing
