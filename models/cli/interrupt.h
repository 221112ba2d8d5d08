#pragma once

// Lets a command end cleanly when it is interrupted.

namespace spool {

inline constexpr int stopped_by_a_signal = 130;

// From now on the first SIGINT or SIGTERM only makes interrupted() true; the second ends the
// program.
void catch_interrupts();
bool interrupted();
// Makes interrupted() false again.
void clear_interrupt();
// Thrown to end a command that was interrupted.
struct Interrupted {};

}  // namespace spool
