#include "spool/planner/machines/machine.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/spill_file.h"
#include "spool/runtime/memory/host_link.h"
#include "spool/runtime/stream.h"

namespace spool {
namespace {

constexpr double min_seconds = 1e-3;       // of a measurement
constexpr double min_read_seconds = 1e-9;  // a clock may not see what is shorter

constexpr int64_t least_extent = 256;  // of a product

constexpr size_t max_product_workspace = size_t{32} << 20;  // bytes

// So large that measured data does not fit into a cache; on a GPU half its memory, at most 1 GiB.
size_t measurement_bytes(Device device) {
  constexpr size_t min_bytes = size_t{64} << 20, max_bytes = size_t{1} << 30;
  if (device.type != DeviceType::cuda) return min_bytes;
  return std::clamp(device_memory(device) / 2, min_bytes, max_bytes);
}

// The minimum of repeated runs, after a warm-up, until the two smallest are about equal.
template <class Work>
double seconds_of(Stream& stream, const Work& work) {
  constexpr int min_repeats = 3, max_repeats = 8;
  constexpr double about = 1.02;
  std::vector<double> all;
  for (int i = 0; i <= max_repeats; ++i) {
    stream.synchronize();
    const double start = work_clock(stream);
    work();
    stream.synchronize();
    if (i > 0) all.push_back(std::max(work_clock(stream) - start, min_read_seconds));
    std::ranges::sort(all);
    if (i >= min_repeats && all[1] <= about * all[0]) break;
  }
  return confirmed_min(std::move(all));
}

double product_flops(Stream& stream, DType type, int64_t extent) {
  const Spec square{Shape{extent, extent}, type};
  const Tensor a(square, stream), b(square, stream), c(square, stream);
  launch(NormalFill{.out = a, .seed = 1}, stream);  // some devices multiply zeros faster
  launch(NormalFill{.out = b, .seed = 2}, stream);
  const Matmul product{.c = c, .a = a, .b = b, .b_transposed = true};
  return product.cost().flops / seconds_of(stream, [&] { launch(product, stream); });
}

// The rate of a product that takes long enough to be measured.
double product_flops(Stream& stream, DType type) {
  const int64_t largest = largest_product(type, stream.memory().capacity);
  int64_t extent = least_extent;
  while (true) {
    const double flops = product_flops(stream, type, extent);
    const double seconds = 2 * std::pow(static_cast<double>(extent), 3) / flops;
    if (seconds >= min_seconds || extent >= largest) return flops;
    extent *= 2;
  }
}

double copy_rate(Stream& stream) {
  size_t bytes = size_t{31} << 20;
  while (true) {
    const Spec spec{Shape{static_cast<int64_t>(bytes / sizeof(float))}};
    const Tensor from(spec, stream), to(spec, stream);
    launch(Fill{.out = from, .value = 1}, stream);
    const Add copy{.out = to, .a = from};
    const double seconds = seconds_of(stream, [&] { launch(copy, stream); });
    if (seconds >= min_seconds || 4 * bytes > stream.memory().capacity) {
      return copy.cost().bytes / seconds;
    }
    bytes *= 2;
  }
}

struct LinkRates {
  double to_host = 0, from_host = 0;
};

// The rates of copies to the host and back, through a HostLink, as offloaded values take it.
LinkRates link_rates(Stream& stream) {
  constexpr size_t bytes = size_t{16} << 20;
  const Tensor from({Shape{bytes / sizeof(float)}}, stream);
  launch(Fill{.out = from}, stream);
  HostLink link(stream, bytes);
  const HostSlot to(link, bytes, "copy");
  const double out = seconds_of(link.begin_out(),
                                [&] { link.out().copy_out(to.data(), from.view().data(), bytes); });
  const double in =
      seconds_of(link.begin_in(), [&] { link.in().copy_in(from.view().data(), to.data(), bytes); });
  return {.to_host = static_cast<double>(bytes) / out,
          .from_host = static_cast<double>(bytes) / in};
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

// The rate of copies within host memory.
double host_memory_rate() {
  const Device cpu{DeviceType::cpu};
  return copy_rate(*open_stream(cpu, measurement_bytes(cpu)));
}

}  // namespace

double work_clock(Stream& stream) {
  const bool cpu = stream.device().type == DeviceType::cpu;
  return cpu ? static_cast<CpuStream&>(stream).processor_clock() : host_clock();
}

double confirmed_min(std::vector<double> seconds) {
  constexpr double confirms = 1.25;
  std::ranges::sort(seconds);
  for (size_t i = 0; i + 1 < seconds.size(); ++i) {
    if (seconds[i + 1] <= confirms * seconds[i]) return seconds[i];
  }
  return seconds.empty() ? 0 : seconds.back();
}

int64_t largest_product(DType type, size_t bytes) {
  const auto fits = [&](int64_t extent) {
    const size_t matrix = static_cast<size_t>(extent * extent) * size_of(type);
    return 3 * matrix + max_product_workspace <= bytes;
  };
  int64_t extent = least_extent;
  while (fits(2 * extent)) extent *= 2;
  return extent;
}

double measure_disk(const std::string& directory) {
  constexpr size_t bytes = size_t{16} << 20;
  SpillFile file(directory, bytes);
  const auto memory = std::make_unique<std::byte[]>(bytes + SpillFile::alignment);
  void* aligned = memory.get();
  size_t space = bytes + SpillFile::alignment;
  auto* data = static_cast<std::byte*>(std::align(SpillFile::alignment, bytes, aligned, space));
  const double start = host_clock();
  file.write(0, data, bytes);
  file.read(0, data, bytes);
  return 2 * static_cast<double>(bytes) / (host_clock() - start);
}

Machine measure_machine(Device device, DType of_products, int threads) {
  const auto stream = open_stream(device, measurement_bytes(device), threads);
  Machine machine{.name = stream->description(), .architecture = stream->architecture()};
  machine.f32_flops = machine.bf16_flops = product_flops(*stream, of_products);
  machine.bytes_per_second = copy_rate(*stream);
  const LinkRates link = link_rates(*stream);
  machine.to_host_bytes_per_second = link.to_host;
  machine.from_host_bytes_per_second = link.from_host;
  machine.host_memory_bytes_per_second =
      device.type == DeviceType::cuda ? host_memory_rate() : machine.bytes_per_second;
  machine.launch_seconds = launch_cost(*stream);
  return machine;
}

}  // namespace spool
