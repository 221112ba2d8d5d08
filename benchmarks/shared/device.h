#pragma once

// What the benchmarks of a device share: which one, asked for on the command line, and how time is
// taken there.

#include <algorithm>
#include <chrono>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool::benchmarks {

// Takes an argument --<name>=<value> out of those there are: its value, else the one given here.
std::string take_argument(int& argc, char** argv, const std::string& name,
                          const std::string& otherwise);

// As if by main(): what is thrown is a sentence on standard error.
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

// The median time of work that is enqueued so many times in a row, of some tries after one to warm
// up.  Of one, where a queue does nothing else, not even wait.
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
