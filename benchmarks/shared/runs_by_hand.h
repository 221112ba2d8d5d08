#pragma once

// Compares what a search finds for runs with policies that are set by hand: no policy may take
// fewer bytes than the smallest budget that the search names, nor be more than 0.1 % faster than
// the plan of its bytes, within the host's memory; and the bound of each plan must be known.  Where
// the machine's clock is not the nominal one, which chooses chunks, a policy that sets chunks may
// be 3 % faster.

#include <string>

namespace spool::benchmarks {

struct SweepChoice {
  std::string file = {};  // of runs and policies, as search_runs.json
  std::string only = {};  // the name of the one run to compare; empty: all
  int jobs = 0;           // runs at a time; 0: one for each core
  bool one_flag = false;  // compares with searches in which one flag of a policy is set
  bool all = false;       // prints every policy, not only those that are smaller or faster
};

// Prints the sweep, and returns whether the search holds against every policy.
bool sweep_runs(const SweepChoice&);

// Prints time, gap and smallest budget of runs of many tokens, with those that a good plan has.
void print_numbers();

}  // namespace spool::benchmarks
