#pragma once

// The ranks of a run as processes: the program starts itself again as each of them.

#include <functional>
#include <string>

namespace spool {

// Rank 0 may read the terminal, whose signals it then has from there.
enum class FirstRank { only_computes, reads_the_terminal };

// Starts the ranks with this program's own words, passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to
// them, stops and goes on with them, and returns their exit code when all have ended.  Throws if
// one was killed, "rank 2 was killed by signal 9 (Killed); " and what `is_left` then says; where
// nobody reads what rank 0 writes, all end without a word.  If this process is killed, they get
// SIGTERM.
int run_as_processes(int ranks, const std::function<std::string()>& is_left,
                     FirstRank first = FirstRank::only_computes);

}  // namespace spool
