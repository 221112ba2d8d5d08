// Measures how well the time of a step is foretold on a cpu.  For each type of weights, the kernels
// of a gpt2-124m step that keeps all are measured once; then steps run under three policies, and
// with the loss in four chunks, whose products were not measured:
//
//   foretold    from the measured kernels            roofline   from the machine's rates alone
//   measured    median of 7 steps                    corrected  by steps 2 to 4 of the same run
//
// Times are processor time over threads, which other programs hardly change.  --load=N measures the
// kernels again beside N threads that keep processors busy, and prints how much the times of matrix
// products differ: for each kernel, and for all together.
//
//   clock [--model=gpt2-124m] [--batch=4] [--seq=256] [--load=2] [--repeats=7]

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "shared/device.h"
#include "shared/token_batch.h"
#include "spool/kernels/matmul.h"
#include "spool/models/families/gpt2.h"
#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cpu/thread_pool.h"

namespace spool {
namespace {

using benchmarks::median;

// Threads that only keep processors and their caches busy.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        std::vector<float> some(1 << 20, 1.0f);
        while (!stop_) {
          for (float& x : some) x = x * 0.999f + 1;
        }
      });
    }
  }
  ~Load() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

struct Setting {
  TrainingConfig config = {};
  Machine machine = {};
  int repeats = 7;
};

std::vector<KernelTime> measure(const Setting& s) {
  const MeasurableWork step =
      measurable_step(describe_step(s.config), make_plans(s.config, {}, s.machine));
  WorkKernels kernels = rehearse_kernels(step, s.machine);
  const auto stream = open_stream({DeviceType::cpu}, kernels.peak);
  return distinct(measure_kernels(step, /*layout=*/{}, std::move(kernels), *stream).launches);
}

// Processor time over threads of each step, after a warm-up.
std::vector<double> time_steps(const Setting& s, const StepPlans& plans, size_t peak) {
  const auto stream = open_stream({DeviceType::cpu}, peak);
  Trainer trainer(s.config, plans, *stream);
  trainer.initialise();
  const TokenBatch batch = benchmarks::random_batch(s.config);
  std::vector<double> all;
  for (int i = 0; i <= s.repeats; ++i) {
    const double start = process_processor_seconds();
    trainer.step(i, batch);
    trainer.result();
    const double threads = static_cast<CpuStream&>(*stream).threads();
    if (i > 0) all.push_back((process_processor_seconds() - start) / threads);
  }
  return all;
}

void compare(Setting s, const std::string& how) {
  Policy policy;
  if (how == "loss in 4") {
    s.config.chunks.loss_rows = s.config.batch * s.config.seq / 4;
  } else {
    set_recompute(policy, how);
  }
  const StepPlans plans = make_plans(s.config, policy, s.machine);
  const Report foretold = foretell_step(describe_step(s.config), plans, s.machine);
  Machine rates = s.machine;
  rates.kernels.reset();
  const double roofline = foretell_step(describe_step(s.config), plans, rates).seconds;
  const std::vector<double> steps = time_steps(s, plans, foretold.memory.peak);
  const double measured = median(steps);
  const double corrected = median({steps.begin(), steps.begin() + 3});  // steps 2 to 4
  const auto off = [&](double seconds) { return 100 * (seconds / measured - 1); };
  std::printf("%-4s %-11s %9.1f %9.1f %+6.1f %% %9.1f %+6.1f %% %9.1f %+6.1f %%\n",
              name(s.config.dtype), how.c_str(), 1e3 * measured, 1e3 * foretold.seconds,
              off(foretold.seconds), 1e3 * corrected, off(corrected), 1e3 * roofline,
              off(roofline));
  std::fflush(stdout);
}

// How far the products measured under load are from those measured alone.
void compare_products(const std::vector<KernelTime>& alone, const std::vector<KernelTime>& beside) {
  double worst = 1, sums[2] = {};
  for (size_t i = 0; i < alone.size(); ++i) {
    if (alone[i].name != Matmul::name) continue;
    const double ratio = beside[i].seconds / alone[i].seconds;
    if (std::max(ratio, 1 / ratio) > std::max(worst, 1 / worst)) worst = ratio;
    sums[0] += alone[i].seconds;
    sums[1] += beside[i].seconds;
    std::printf("  product of %.3g flops, %.3g bytes: %.2f ms, beside the load %.2f ms\n",
                alone[i].cost.flops, alone[i].cost.bytes, 1e3 * alone[i].seconds,
                1e3 * beside[i].seconds);
  }
  std::printf("beside the load all products take %.3f x, the one that differs most %.3f x\n",
              sums[1] / sums[0], worst);
}

void report(Setting s, int load) {
  s.machine = measure_machine({DeviceType::cpu}, s.config.dtype);
  const double start = process_processor_seconds(), wall = host_clock();
  const std::vector<KernelTime> alone = measure(s);
  std::printf("%s: %zu kernels measured in %.1f s of processors, %.1f s\n", name(s.config.dtype),
              alone.size(), process_processor_seconds() - start, host_clock() - wall);
  s.machine.kernels = std::make_shared<KernelTimes>(alone);
  for (const char* how : {"none", "norms,gelu", "block", "loss in 4"}) compare(s, how);
  if (load == 0) return;
  const Load busy(load);
  compare_products(alone, measure(s));
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  const auto take = [&](const char* key, const char* otherwise) {
    return benchmarks::take_argument(argc, argv, key, otherwise);
  };
  return benchmarks::report_errors([&] {
    Setting s;
    s.config.model = *gpt2_preset(take("model", "gpt2-124m"));
    s.config.batch = std::stoi(take("batch", "4"));
    s.config.seq = std::stoi(take("seq", "256"));
    s.repeats = std::stoi(take("repeats", "7"));
    const int load = std::stoi(take("load", "2"));
    std::printf("%-16s %9s %9s          %9s          %9s\n", "ms a step", "measured", "foretold",
                "corrected", "roofline");
    for (const DType dtype : {DType::f32, DType::bf16}) {
      s.config.dtype = dtype;
      report(s, load);
    }
  });
}
