#pragma once

// Registers benchmarks that time their iterations themselves.

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace spool::benchmarks {

// In milliseconds; an error of the work is reported as the benchmark's.
void register_timed(const std::string& title, int iterations,
                    std::function<void(benchmark::State&)> work);

}  // namespace spool::benchmarks
