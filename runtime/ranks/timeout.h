#pragma once

// How long a rank waits for others in one exchange before it ends with an error that names them.

namespace spool {

constexpr double usual_rank_timeout = 120;  // seconds

// Of this process; set it before its ranks begin.
double rank_timeout();
void set_rank_timeout(double seconds);

}  // namespace spool
