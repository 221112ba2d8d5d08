#include "kernel_bench.h"

#include "shared/unit_rate.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/random.h"

namespace spool::benchmarks {
namespace {

constexpr size_t max_memory = size_t{16} << 30;

double product_flops(Bench& b, DType type) {
  const int64_t n = std::min<int64_t>(b.N, 8192);
  Arguments arguments(*b.stream);
  const View x = arguments.make({n, n}, type), y = arguments.make({n, n}, type);
  const Matmul product{.c = arguments.make({n, n}, type), .a = x, .b = y, .b_transposed = true};
  return product.cost().flops /
         seconds_each(*b.stream, /*times=*/3, [&] { launch(product, *b.stream); });
}

// Copies 1 GiB at 32768 tokens; the rate counts bytes read and written.
double copy_rate(Bench& b) {
  Arguments arguments(*b.stream);
  const View from = arguments.make({b.N, 8192}, DType::f32),
             to = arguments.make({b.N, 8192}, DType::f32);
  return 2 * static_cast<double>(from.nbytes()) / seconds_each(*b.stream, /*times=*/3, [&] {
           b.stream->copy(to.data(), from.data(), from.nbytes());
         });
}

double launch_cost(Bench& b) {
  Arguments arguments(*b.stream);
  const Fill nothing{.out = arguments.make({1}, DType::f32)};
  return seconds_each(*b.stream, /*times=*/200, [&] { launch(nothing, *b.stream); });
}

void measure_rates(Bench& b) {
  if (b.on_cuda()) {
    b.machine.f32_flops = product_flops(b, DType::f32);
    b.machine.bf16_flops = product_flops(b, DType::bf16);
    b.machine.bytes_per_second = copy_rate(b);
    b.machine.launch_seconds = launch_cost(b);
  } else {
    b.machine = measure_machine(b.device, DType::f32);
    b.machine.bf16_flops = measure_machine(b.device, DType::bf16).bf16_flops;
    b.unit_flops = unit_rate(static_cast<CpuStream&>(*b.stream));
  }
}

}  // namespace

View Arguments::make(const Shape& shape, DType dtype) {
  const Tensor t({shape, dtype}, stream_);
  if (dtype == DType::i32) {
    Random random(tensors_.size());
    std::vector<int32_t> ids(static_cast<size_t>(shape.numel()));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % 50000);
    write<int32_t>(t, ids);
  } else if (dtype == DType::f64) {  // which NormalFill does not have on cuda
    write<double>(t, std::vector<double>(static_cast<size_t>(shape.numel()), 1.0));
  } else {
    launch(NormalFill{.out = t, .deviation = 0.1f, .seed = tensors_.size()}, stream_);
  }
  tensors_.push_back(t);
  return t;
}

View Arguments::with_values(const std::vector<float>& values) {
  tensors_.push_back(
      make_tensor<float>(Shape{static_cast<int64_t>(values.size())}, values, stream_));
  return tensors_.back();
}

View Arguments::document_starts(int64_t rows, int64_t T, int64_t documents) {
  std::vector<int32_t> starts;
  for (int64_t i = 0; i < rows * T; ++i) {
    const int64_t t = i % T, length = T / documents;
    starts.push_back(static_cast<int32_t>(t / length * length));
  }
  tensors_.push_back(make_tensor<int32_t>(Shape{rows, T}, starts, stream_));
  return tensors_.back();
}

void Bench::set_counters(benchmark::State& state, const Cost& cost, double seconds) const {
  state.counters["us"] = seconds * 1e6;
  state.counters["share"] = machine.seconds(cost) / seconds;
  state.counters["of_copy"] = cost.bytes / seconds / machine.bytes_per_second;
  state.counters["gb_per_s"] = cost.bytes / seconds / 1e9;
  state.counters["gflop_per_s"] = cost.flops / seconds / 1e9;
}

std::unique_ptr<Bench> open_bench(Device device, int64_t N) {
  const bool cuda = device.type == DeviceType::cuda;
  if (N == 0) N = cuda ? 32768 : 1024;
  const size_t bytes = std::min(max_memory, device_memory(device) / 10 * 9);
  auto bench = std::make_unique<Bench>(Bench{device, N, open_stream(device, bytes)});
  measure_rates(*bench);
  return bench;
}

}  // namespace spool::benchmarks
