// Machines known by name, and confirmed times.

#include "spool/planner/machines/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "spool/planner/machines/links.h"
#include "spool/runtime/meta/kernel_times.h"

namespace spool {
namespace {

TEST(Machines, HaveNames) {
  for (const std::string& known : machine_names()) {
    ASSERT_TRUE(named_machine(known)) << known;
    EXPECT_EQ(named_machine(known)->name, known);
    EXPECT_GE(memory_of_named_machine(known), size_t{24'000'000'000}) << known;
  }
  for (const char* known : {"h200", "h100", "a100-80g", "a100-80g-pcie", "a100-40g", "rtx4090"}) {
    EXPECT_TRUE(named_machine(known)) << known;
  }
  for (const char* other : {"h2000", "", "this"}) {
    EXPECT_FALSE(named_machine(other));
    EXPECT_FALSE(memory_of_named_machine(other));
  }
}

TEST(Machines, HaveALinkBetweenDevicesOfAKind) {
  const auto rate = [](const char* name) {
    return named_machine(name)->mesh.link.bytes_per_second;
  };
  EXPECT_DOUBLE_EQ(rate("h200"), 0.78 * 450e9);
  EXPECT_DOUBLE_EQ(rate("h100"), 0.78 * 450e9);
  EXPECT_DOUBLE_EQ(rate("a100-80g"), 0.78 * 300e9);
  EXPECT_DOUBLE_EQ(rate("a100-40g"), 0.78 * 300e9);
  EXPECT_DOUBLE_EQ(rate("a100-80g-pcie"), 0.78 * 32e9);
  EXPECT_DOUBLE_EQ(rate("rtx4090"), 25e9);
  for (const std::string& name : machine_names()) {
    const Mesh mesh = named_machine(name)->mesh;
    EXPECT_EQ(mesh.ranks, 0) << name;
    EXPECT_EQ(mesh.link.seconds, 8e-6) << name;
    EXPECT_EQ(mesh.between_machines.seconds, 20e-6) << name;
    EXPECT_EQ(mesh.between_machines.bytes_per_second, std::min(50e9, mesh.link.bytes_per_second))
        << name;
  }
}

TEST(Machines, HaveNamesWithNumbersOfRanks) {
  for (const std::string& known : machine_names()) {
    const std::optional<Machine> eight = named_machine("8x" + known);
    ASSERT_TRUE(eight) << known;
    EXPECT_EQ(eight->name, known);
    EXPECT_EQ(eight->mesh.ranks, 8);
    EXPECT_EQ(eight->mesh.machine_of(7), 0);
    EXPECT_EQ(memory_of_named_machine("8x" + known), memory_of_named_machine(known));
  }
  const Mesh two = named_machine("2x8xh200")->mesh;
  EXPECT_EQ(two.ranks, 16);
  EXPECT_EQ(two.machine_of(7), 0);
  EXPECT_EQ(two.machine_of(8), 1);
  EXPECT_EQ(named_machine("4xrtx4090")->mesh.ranks, 4);
  EXPECT_EQ(named_machine("1xh100")->mesh.ranks, 1);
  EXPECT_EQ(named_machine("16xh100")->mesh.ranks, 16);
  EXPECT_EQ(named_machine("1024x16xh100")->mesh.ranks, 16384);
}

TEST(Machines, SayWhatIsWrongWithNumbersOfRanks) {
  for (const char* bad : {"0xh200", "xh200", "3x4x5xh200", "99999xh200", "-8xh200", "08xh200",
                          "8.5xh200", "17xh200", "0x8xh200", "8x0xh200", "1025x8xh200", "8xxh200",
                          "99999999999xh200", "+8xh200", "8 xh200", "8Xxh200"}) {
    EXPECT_FALSE(named_machine(bad)) << bad;
    EXPECT_FALSE(memory_of_named_machine(bad)) << bad;
    EXPECT_TRUE(fault_of_numbers(bad).find("as 8xh200") != std::string::npos) << bad;
  }
  for (const char* other : {"8x", "8xh2000", "8h200", "x", "8xcpu", "8XH200"}) {
    EXPECT_FALSE(named_machine(other)) << other;
    EXPECT_EQ(fault_of_numbers(other), "") << other;
  }
  EXPECT_EQ(fault_of_numbers("8xh200"), "");
  EXPECT_EQ(fault_of_numbers("h200"), "");
}

// Three matrices of the type, and the workspace of a product.
TEST(MeasuredProduct, IsTheLargestThatFits) {
  constexpr size_t gib = size_t{1} << 30;
  EXPECT_EQ(largest_product(DType::bf16, gib), 8192);
  EXPECT_EQ(largest_product(DType::f32, gib), 8192);
  EXPECT_EQ(largest_product(DType::f32, gib / 2), 4096);
  EXPECT_EQ(largest_product(DType::bf16, gib / 2), 8192);
  EXPECT_EQ(largest_product(DType::f32, gib / 16), 1024);
  EXPECT_EQ(largest_product(DType::f32, 0), 256);
}

TEST(NominalMachine, HasFixedRatesByTheKindOfDevice) {
  const auto bf16_rate = [](Bf16Products products) {
    const Machine measured{.name = "here",
                           .architecture = CpuArchitecture{.threads = 3, .bf16_products = products},
                           .f32_flops = 7e11,
                           .launch_seconds = 1};
    const Machine nominal = nominal_machine(measured);
    EXPECT_EQ(nominal.name, "here");
    EXPECT_EQ(std::get<CpuArchitecture>(nominal.architecture).threads, 3);
    EXPECT_EQ(nominal.f32_flops, 200e9);
    EXPECT_EQ(nominal.bytes_per_second, 20e9);
    EXPECT_EQ(nominal.launch_seconds, 5e-6);
    return nominal.bf16_flops;
  };
  EXPECT_EQ(bf16_rate(Bf16Products::as_f32), 200e9);
  EXPECT_EQ(bf16_rate(Bf16Products::pairs), 400e9);
  EXPECT_EQ(bf16_rate(Bf16Products::tiles), 800e9);
}

TEST(NominalMachine, OfAGpuIsTheSheetOfTheNearestCapability) {
  const auto near = [](int major, int minor) {
    const CudaArchitecture gpu{.major = major, .minor = minor, .fused_attention = false};
    const Machine nominal = nominal_machine({.architecture = gpu, .bf16_flops = 1});
    EXPECT_EQ(std::get<CudaArchitecture>(nominal.architecture).minor, minor);
    EXPECT_FALSE(std::get<CudaArchitecture>(nominal.architecture).fused_attention);
    return nominal.bf16_flops;
  };
  EXPECT_EQ(near(8, 0), named_machine("a100-80g")->bf16_flops);
  EXPECT_EQ(near(8, 6), named_machine("rtx4090")->bf16_flops);
  EXPECT_EQ(near(8, 9), named_machine("rtx4090")->bf16_flops);
  EXPECT_EQ(near(9, 0), named_machine("h100")->bf16_flops);
  EXPECT_EQ(near(12, 0), named_machine("h100")->bf16_flops);
}

// What decides the order of sums knows the ranks, but no link that was measured.
TEST(NominalMachine, HasRanksByLinksThatWereNotMeasured) {
  const Link fast{.seconds = 1e-6, .bytes_per_second = 1e12};
  const Mesh measured{
      .ranks = 16, .rank = 3, .link = fast, .ranks_of_machine = 8, .between_machines = fast};
  const auto kernels = std::make_shared<KernelTimes>(std::vector<KernelTime>{});
  const CudaArchitecture gpu{.major = 9, .minor = 0};
  const Mesh sheet = named_machine("h100")->mesh;
  const Mesh nominal =
      nominal_machine({.architecture = gpu, .mesh = measured, .kernels = kernels}).mesh;
  EXPECT_EQ(nominal.ranks, 16);
  EXPECT_EQ(nominal.rank, 3);
  EXPECT_EQ(nominal.ranks_of_machine, 8);
  EXPECT_EQ(nominal.link.bytes_per_second, sheet.link.bytes_per_second);
  EXPECT_EQ(nominal.link.seconds, sheet.link.seconds);
  EXPECT_EQ(nominal.between_machines.bytes_per_second, sheet.between_machines.bytes_per_second);
  const Mesh cpu = nominal_machine({.architecture = CpuArchitecture{}, .mesh = measured}).mesh;
  EXPECT_EQ(cpu.ranks, 16);
  EXPECT_EQ(cpu.link.bytes_per_second, link_by_memory(20e9).bytes_per_second);
  const Machine card = *named_machine("4xa100-80g-pcie");
  EXPECT_EQ(nominal_machine(card).mesh.link.bytes_per_second, card.mesh.link.bytes_per_second);
}

TEST(ConfirmedMin, HasAnotherTimeNearIt) {
  EXPECT_EQ(confirmed_min({3, 2, 2.2, 5}), 2);
  EXPECT_EQ(confirmed_min({2.2, 0.001, 2, 5}), 2);  // missed by the clock
  EXPECT_EQ(confirmed_min({1, 2}), 2);
  EXPECT_EQ(confirmed_min({4}), 4);
  EXPECT_EQ(confirmed_min({}), 0);
}

}  // namespace
}  // namespace spool
