#pragma once

// A benchmark of kernels: what they work on, how they are timed, and what they are held against.

#include <benchmark/benchmark.h>

#include "device.h"
#include "spool/kernels/launch.h"

namespace spool::benchmarks {

// The arguments of a kernel, alive as long as this.
class Arguments {
 public:
  explicit Arguments(Stream& stream) : stream_(stream) {}
  Stream& stream() const { return stream_; }

  // Normal, or for i32 ids of tokens.
  View make(const Shape&, DType);
  View holding(const std::vector<float>&);
  void clear() { held_.clear(); }

 private:
  Stream& stream_;
  std::vector<Tensor> held_;
};

constexpr double beyond_any_cache = 256e6;  // bytes

struct Bench {
  Device device;
  int64_t N;  // tokens
  std::unique_ptr<Stream> stream;
  Machine machine = {};
  Arguments arguments{*stream};
  std::string made_for = {};  // the benchmark that the arguments are of

  bool on_cuda() const { return device.type == DeviceType::cuda; }

  // Registers what make(arguments) returns.
  template <class Make>
  void add(const std::string& title, const Make& make) {
    using Kernel = decltype(make(arguments));
    const auto kernels = std::make_shared<std::vector<Kernel>>();
    auto* const added = benchmark::RegisterBenchmark(
        title.c_str(), [this, title, make, kernels](benchmark::State& state) {
          try {
            if (made_for != title) {
              made_for.clear();
              *kernels = sets<Kernel>(make);
              made_for = title;
            }
            time(state, *kernels);
          } catch (const std::exception& e) {
            state.SkipWithError(e.what());
          }
        });
    added->UseManualTime()->Unit(benchmark::kMicrosecond);
    if (on_cuda()) added->Iterations(15);
  }

 private:
  template <class Kernel, class Make>
  std::vector<Kernel> sets(const Make& make) {
    arguments.clear();
    std::vector<Kernel> all{make(arguments)};
    const double bytes = std::max(all.front().cost().bytes, 1.0);
    const int count = on_cuda() ? std::clamp(static_cast<int>(beyond_any_cache / bytes), 1, 8) : 1;
    while (static_cast<int>(all.size()) < count) all.push_back(make(arguments));
    return all;
  }

  template <class Kernel>
  void time(benchmark::State& state, const std::vector<Kernel>& kernels) {
    size_t next = 0;
    const auto one = [&] { launch(kernels[next++ % kernels.size()], *stream); };
    int times = 1;
    if (on_cuda()) {  // as many as take 5 ms, and not more than a queue takes without waiting
      const double seconds = seconds_each(*stream, static_cast<int>(kernels.size()), one);
      times = std::clamp(static_cast<int>(5e-3 / seconds), 4, 500);
    } else {
      one();
      stream->synchronize();
    }
    std::vector<double> all;
    for (auto _ : state) {
      all.push_back(seconds_of([&] {
                      for (int i = 0; i < times; ++i) one();
                      stream->synchronize();
                    }) /
                    times);
      state.SetIterationTime(all.back());
    }
    count(state, kernels.front().cost(), median(all));
  }

  void count(benchmark::State&, const Cost&, double seconds) const;
};

// A bench on the device; N: 0 for the device's own.
std::unique_ptr<Bench> open_bench(Device, int64_t N);

}  // namespace spool::benchmarks
