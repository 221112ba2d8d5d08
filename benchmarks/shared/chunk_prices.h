#pragma once

// Compares chunks over tables of measured kernels, numbers of threads and budgets: they are chosen
// by a clock that no measurement enters, so they should not differ, and what this costs is the time
// of a plan above that of a plan whose chunks are chosen freely.

namespace spool::benchmarks {

// Prints a line for each model, table and number of threads, and the prices of the clock alone.
// Returns whether all chunks of a model and a budget are equal, and these prices as low as they
// should be.
bool print_chunk_prices();

}  // namespace spool::benchmarks
