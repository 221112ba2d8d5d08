// Machines known by name, and confirmed times.

#include "spool/planner/machines/machine.h"

#include <gtest/gtest.h>

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

TEST(ConfirmedMin, HasAnotherTimeNearIt) {
  EXPECT_EQ(confirmed_min({3, 2, 2.2, 5}), 2);
  EXPECT_EQ(confirmed_min({2.2, 0.001, 2, 5}), 2);  // missed by the clock
  EXPECT_EQ(confirmed_min({1, 2}), 2);
  EXPECT_EQ(confirmed_min({4}), 4);
  EXPECT_EQ(confirmed_min({}), 0);
}

}  // namespace
}  // namespace spool
