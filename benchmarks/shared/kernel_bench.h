#pragma once

// Benchmarks single kernels: creates their arguments, times them, and compares them with the
// machine's rates.

#include <benchmark/benchmark.h>

#include "device.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/matmul.h"

namespace spool::benchmarks {

// Creates the arguments of kernels, and owns their memory.
class Arguments {
 public:
  explicit Arguments(Stream& stream) : stream_(stream) {}
  Stream& stream() const { return stream_; }

  // Normally distributed numbers, token ids for i32, or ones for f64.
  View make(const Shape&, DType);
  View with_values(const std::vector<float>&);
  // (rows, T): where the document of each token begins, of as many in each row.
  View document_starts(int64_t rows, int64_t T, int64_t documents);
  void clear() { tensors_.clear(); }

 private:
  Stream& stream_;
  std::vector<Tensor> tensors_;
};

constexpr double larger_than_caches = 256e6;  // bytes

struct Bench {
  Device device;
  int64_t N;  // tokens
  std::unique_ptr<Stream> stream;
  Machine machine = {};
  double unit_flops = 0;  // per second, of the tile units of its threads; 0: none
  Arguments arguments{*stream};
  std::string made_for = {};  // title of the benchmark that the arguments belong to

  bool on_cuda() const { return device.type == DeviceType::cuda; }

  // Registers a benchmark of the kernel that make(arguments) returns.
  template <class Make>
  void add(const std::string& title, const Make& make) {
    using Kernel = decltype(make(arguments));
    const auto kernels = std::make_shared<std::vector<Kernel>>();
    auto* const added = benchmark::RegisterBenchmark(
        title.c_str(), [this, title, make, kernels](benchmark::State& state) {
          try {
            if (made_for != title) {
              made_for.clear();
              *kernels = make_kernels<Kernel>(make);
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
  // The kernel with one set of arguments; on cuda with several, which together exceed the cache.
  template <class Kernel, class Make>
  std::vector<Kernel> make_kernels(const Make& make) {
    arguments.clear();
    std::vector<Kernel> all{make(arguments)};
    const double bytes = std::max(all.front().cost().bytes, 1.0);
    const int count =
        on_cuda() ? std::clamp(static_cast<int>(larger_than_caches / bytes), 1, 8) : 1;
    while (static_cast<int>(all.size()) < count) all.push_back(make(arguments));
    return all;
  }

  template <class Kernel>
  void time(benchmark::State& state, const std::vector<Kernel>& kernels) {
    size_t next = 0;
    const auto launch_next = [&] { launch(kernels[next++ % kernels.size()], *stream); };
    int times = 1;
    if (on_cuda()) {  // about 5 ms of work, and no more launches than a queue accepts at once
      const double seconds = seconds_each(*stream, static_cast<int>(kernels.size()), launch_next);
      times = std::clamp(static_cast<int>(5e-3 / seconds), 4, 500);
    } else {
      launch_next();
      stream->synchronize();
    }
    std::vector<double> all;
    for (auto _ : state) {
      all.push_back(seconds_of([&] {
                      for (int i = 0; i < times; ++i) launch_next();
                      stream->synchronize();
                    }) /
                    times);
      state.SetIterationTime(all.back());
    }
    const Cost cost = cost_on(kernels.front(), stream->architecture());
    set_counters(state, cost, median(all));
    if (std::is_same_v<Kernel, Matmul> && cost.dtype == DType::bf16 && unit_flops > 0) {
      state.counters["of_unit"] = cost.flops / median(all) / unit_flops;
    }
  }

  void set_counters(benchmark::State&, const Cost&, double seconds) const;
};

// Opens the device and measures its rates.  N: tokens; 0: the device's default.
std::unique_ptr<Bench> open_bench(Device, int64_t N);

}  // namespace spool::benchmarks
