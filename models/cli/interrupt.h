#pragma once

// Lets a command end cleanly when it is interrupted.

namespace spool {

inline constexpr int stopped_by_a_signal = 130;

// From now on the first SIGINT or SIGTERM only makes interrupted() true; the second ends the
// program.  SIGHUP only does the first, as often as it comes, since a terminal that goes away may
// send several; where it is ignored already, as under nohup, it stays so.
void catch_interrupts();
// A reader of the output that goes away no longer ends the program.
void outlive_readers();
bool interrupted();
// Makes interrupted() false again.
void clear_interrupt();
// Thrown to end a command that was interrupted.
struct Interrupted {};

}  // namespace spool
