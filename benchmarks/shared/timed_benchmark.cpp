#include "shared/timed_benchmark.h"

#include <exception>
#include <utility>

namespace spool::benchmarks {

void register_timed(const std::string& title, int iterations,
                    std::function<void(benchmark::State&)> work) {
  const auto run = [work = std::move(work)](benchmark::State& state) {
    try {
      work(state);
    } catch (const std::exception& e) {
      state.SkipWithError(e.what());
    }
  };
  benchmark::RegisterBenchmark(title.c_str(), run)
      ->UseManualTime()
      ->Iterations(iterations)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace spool::benchmarks
