#pragma once

// Lets a command end cleanly when it is interrupted.

namespace spool {

inline constexpr int stopped_by_a_signal = 130;

// From now on the first SIGINT or SIGTERM only makes interrupted() true; the second one ends the
// program.  A SIGHUP, or a SIGUSR1, by which Slurm and mpirun warn, never does more than the first,
// since a closing terminal may send several; one that is ignored already, as under nohup, stays
// ignored.
void catch_interrupts();
// From now on these signals do nothing here: another process, which had them too, ends this one.
void leave_interrupts();
// Whether the program was started with a signal ignored, as under nohup.
bool is_ignored(int signal);
// A closed reader of the output no longer ends the program.
void outlive_readers();
bool interrupted();
// Makes interrupted() false again.
void clear_interrupt();
// Thrown to end a command that was interrupted.
struct Interrupted {};

}  // namespace spool
