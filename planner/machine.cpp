#include "spool/planner/machine.h"

#include <algorithm>
#include <chrono>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/matmul.h"
#include "spool/runtime/stream.h"

namespace spool {
namespace {

constexpr size_t memory = size_t{64} << 20;

// The best of a few, after one to warm up.
template <class Work>
double seconds_of(Stream& stream, const Work& work) {
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    stream.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::min(best, took.count());
  }
  return best;
}

double product_flops(Stream& stream, DType type) {
  const Spec square{Shape{1024, 1024}, type};
  const Tensor a(square, stream), b(square, stream), c(square, stream);
  launch(Fill{.out = a, .value = 1}, stream);
  launch(Fill{.out = b, .value = 1}, stream);
  const Matmul product{.c = c, .a = a, .b = b, .b_transposed = true};
  return product.cost().flops / seconds_of(stream, [&] { launch(product, stream); });
}

double copy_rate(Stream& stream) {
  const Spec half{Shape{static_cast<int64_t>(memory / 2 / sizeof(float)) - 1024}};
  const Tensor from(half, stream), to(half, stream);
  launch(Fill{.out = from, .value = 1}, stream);
  const Add copy{.out = to, .a = from};
  return copy.cost().bytes / seconds_of(stream, [&] { launch(copy, stream); });
}

double launch_cost(Stream& stream) {
  constexpr int count = 200;
  const Tensor one({Shape{1}}, stream);
  return seconds_of(stream,
                    [&] {
                      for (int i = 0; i < count; ++i) launch(Fill{.out = one}, stream);
                    }) /
         count;
}

}  // namespace

Machine measure_machine(Device device, DType of_products, int threads) {
  const auto stream = open_stream(device, memory, threads);
  Machine machine{.name = std::string(name(device.type)), .architecture = stream->architecture()};
  machine.f32_flops = machine.bf16_flops = product_flops(*stream, of_products);
  machine.bytes_per_second = copy_rate(*stream);
  machine.host_bytes_per_second = machine.bytes_per_second / 2;
  machine.launch_seconds = launch_cost(*stream);
  return machine;
}

}  // namespace spool
