#pragma once

// Checks of a layout, for offsets of any origin.

#include "spool/runtime/memory/layout.h"

namespace spool::testing {

// Expects that allocations whose lives overlap do not share bytes, and that the sums are right.
void expect_apart(const Layout&);

// The bytes a layout takes beyond the most that are live at once, as a part of those.
double waste(const Layout&);

}  // namespace spool::testing
