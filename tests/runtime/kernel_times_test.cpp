// The table of measured kernels, and what a rehearsal takes from it.

#include <gtest/gtest.h>

#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr Cost square{.flops = 2e9, .bytes = 3e6}, other{.flops = 2e9, .bytes = 4e6};

TEST(KernelTimes, FindsAKernelByNameFlopsBytesAndType) {
  const KernelTimes times({{"matmul", square, 0.25},
                           {"matmul", other, 0.5},
                           {"add", square, 0.125},
                           {"matmul", {.flops = 2e9, .bytes = 3e6, .dtype = DType::bf16}, 1}});
  EXPECT_EQ(*times.find("matmul", square), 0.25);
  EXPECT_EQ(*times.find(std::string("matmul").c_str(), other), 0.5);
  EXPECT_EQ(*times.find("add", square), 0.125);
  EXPECT_EQ(times.find("add", other), nullptr);
  EXPECT_EQ(times.find("scale", square), nullptr);
  EXPECT_EQ(*times.find("matmul", {2e9, 3e6, DType::bf16}), 1);
  EXPECT_EQ(times.all().front().name, "add");
}

TEST(KernelTimes, FindsEachOfMany) {
  std::vector<KernelTime> many;
  for (int i = 0; i < 3000; ++i) {
    many.push_back({i % 2 ? "odd" : "even", {.flops = i / 2 * 1024.0}, i + 1.0});
  }
  const KernelTimes times(many);
  for (const KernelTime& k : many) EXPECT_EQ(*times.find(k.name.c_str(), k.cost), k.seconds);
  EXPECT_EQ(times.find("odd", {.flops = 1}), nullptr);
  EXPECT_EQ(KernelTimes({}).find("odd", {}), nullptr);
}

TEST(KernelTimes, RefusesWhatIsNoMeasurement) {
  const auto refused = [](const KernelTime& k) {
    expect_error(ErrorKind::invalid, {"measurement"}, [&] { KernelTimes({k}); });
  };
  refused({"add", square, 0});
  refused({"add", square, std::numeric_limits<double>::infinity()});
  refused({"add", {.flops = -1}, 1});
  refused({"", square, 1});
  expect_error(ErrorKind::invalid, {"add", "twice"}, [] {
    KernelTimes({{"add", square, 1}, {"add", square, 2}});
  });
}

TEST(KernelTimes, AreWhatARehearsalTakes) {
  Machine machine{.f32_flops = 1e9, .launch_seconds = 0};
  machine.kernels =
      std::make_shared<KernelTimes>(std::vector<KernelTime>{{"matmul", square, 0.25}});
  MetaStream stream(machine);
  stream.charge("matmul", square);
  EXPECT_EQ(stream.now(), 0.25);
  stream.charge("add", square);
  EXPECT_EQ(stream.now(), 0.5);
}

TEST(KernelTimes, ScaleTheRatesForKernelsLikeThem) {
  Machine machine{.f32_flops = 1e9, .bytes_per_second = 1e9, .launch_seconds = 0};
  machine.kernels =
      std::make_shared<KernelTimes>(std::vector<KernelTime>{{"matmul", {.flops = 1e6}, 2e-3},
                                                            {"matmul", {.flops = 1e9}, 0.5},
                                                            {"add", {.bytes = 1e9}, 3}});
  const auto seconds = [&](const char* name, const Cost& cost) {
    return kernel_seconds(machine, name, cost);
  };
  EXPECT_DOUBLE_EQ(seconds("matmul", {.flops = 2e6}), 4e-3);
  EXPECT_DOUBLE_EQ(seconds("matmul", {.flops = 5e5}), 1e-3);
  EXPECT_DOUBLE_EQ(seconds("matmul", {.flops = 5e8}), 0.25);
  EXPECT_DOUBLE_EQ(seconds("matmul", {.flops = 4e9}), 2);
  EXPECT_DOUBLE_EQ(seconds("add", {.bytes = 1e3}), 3e-6);
}

TEST(KernelTimes, ScaleTheRatesForKernelsLikeNone) {
  Machine machine{.f32_flops = 1e9, .bytes_per_second = 1e9, .launch_seconds = 0};
  const Cost unknown{.flops = 1e9}, bf16{.flops = 4e11, .dtype = DType::bf16};
  const auto seconds = [&](const char* name, const Cost& cost) {
    return kernel_seconds(machine, name, cost);
  };
  machine.kernels = std::make_shared<KernelTimes>(std::vector<KernelTime>{});
  EXPECT_DOUBLE_EQ(seconds("scale", unknown), 1);
  std::vector<KernelTime> kernels{
      {"matmul", {.flops = 1e6}, 2e-3}, {"gelu", {.flops = 1e9}, 0.5}, {"add", {.bytes = 1e9}, 3}};
  machine.kernels = std::make_shared<KernelTimes>(kernels);
  EXPECT_DOUBLE_EQ(seconds("scale", unknown), 2);
  EXPECT_DOUBLE_EQ(seconds("matmul", bf16), 2 * machine.seconds(bf16));
  for (int i = 1; i <= 5000; ++i) kernels.push_back({"norm", {.flops = 1e3 * i}, 5e-6 * i});
  machine.kernels = std::make_shared<KernelTimes>(kernels);
  EXPECT_DOUBLE_EQ(seconds("scale", unknown), 5);
}

TEST(KernelTimes, OfADeviceAreNotItsHosts) {
  const auto times = std::make_shared<KernelTimes>(std::vector<KernelTime>{{"adamw", square, 1}});
  const auto host_has_them = [&](const Architecture& architecture) {
    MetaStream device(Machine{.architecture = architecture, .kernels = times});
    const auto arena = std::make_shared<Arena>(nullptr, size_t{1} << 20, "host");
    const auto host = device.on_host(arena);
    return static_cast<MetaStream&>(*host).machine().kernels != nullptr;
  };
  EXPECT_TRUE(host_has_them(CpuArchitecture{}));
  EXPECT_FALSE(host_has_them(CudaArchitecture{}));
}

TEST(LinkRates, DifferByDirection) {
  MetaStream stream(Machine{.to_host_bytes_per_second = 1e6, .from_host_bytes_per_second = 4e6});
  stream.copy_out(nullptr, nullptr, 2'000'000);
  EXPECT_EQ(stream.now(), 2);
  stream.copy_in(nullptr, nullptr, 2'000'000);
  EXPECT_EQ(stream.now(), 2.5);
  stream.upload(nullptr, nullptr, 2'000'000);
  EXPECT_EQ(stream.now(), 3);
}

}  // namespace
}  // namespace spool::testing
