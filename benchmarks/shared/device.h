#pragma once

// Helpers for all benchmarks: command-line arguments, errors, and timing.

#include <algorithm>
#include <chrono>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool::benchmarks {

// The value of the argument --<name>=<value>, which is removed from argv; `otherwise` if absent.
std::string take_argument(int& argc, char** argv, const std::string& name,
                          const std::string& otherwise);
// Whether there is an argument --<name>, which is removed from argv.
bool take_flag(int& argc, char** argv, const std::string& name);

// Runs the work of main(), and prints an exception to standard error.  Returns the exit status.
int report_errors(const std::function<void()>& work);

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> all) {
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

// The median seconds of one `work` when it is enqueued `times` times in a row, over five attempts
// after a warm-up.
template <class Work>
double seconds_each(Stream& stream, int times, const Work& work) {
  std::vector<double> all;
  for (int attempt = 0; attempt < 6; ++attempt) {
    const double seconds = seconds_of([&] {
      for (int i = 0; i < times; ++i) work();
      stream.synchronize();
    });
    if (attempt > 0) all.push_back(seconds / times);
  }
  return median(all);
}

}  // namespace spool::benchmarks
