#pragma once

// How a command notices that it is to stop.

namespace spool {

inline constexpr int stopped_by_a_signal = 130;

// From here on the first SIGINT or SIGTERM only makes interrupted() true; the second ends the
// program.
void catch_interrupts();
bool interrupted();
// Forgets that there was one.
void clear_interrupt();
// Thrown to end a command that was interrupted.
struct Interrupted {};

}  // namespace spool
