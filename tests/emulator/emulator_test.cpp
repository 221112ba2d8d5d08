// runs: threads
// The emulator finds every planted bug, and the same kernels without a bug pass in every order of
// their threads.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "spool/runtime/cuda/handles.cuh"
#include "tests/emulator/planted_bugs.h"
#include "tests/emulator/sanitizer.h"
#include "tests/emulator/watcher.h"

namespace emulator::planted {
namespace {

using Numbers = std::vector<float>;
using Kernel = void (*)(const float*, float*, int);

struct Case {
  Kernel kernel = nullptr;
  int n = 0;
  unsigned blocks = 1, threads = 256;
  size_t shared = 0;
  int inputs = n, outputs = 1;
};

struct Outcome {
  std::string error;
  Numbers out;
};

float input(int i) { return static_cast<float>(i % 7 - 2); }

Outcome outcome(const Case& it) {
  const auto bytes = [](int count) { return static_cast<size_t>(count) * sizeof(float); };
  const spool::cuda::DeviceMemory in(bytes(it.inputs)), out(bytes(it.outputs));
  auto* from = reinterpret_cast<float*>(in.data());
  for (int i = 0; i < it.inputs; ++i) from[i] = input(i);
  const auto stream = spool::cuda::make_stream();
  const cudaLaunchConfig_t config{.gridDim = dim3(it.blocks),
                                  .blockDim = dim3(it.threads),
                                  .dynamicSmemBytes = it.shared,
                                  .stream = stream.get()};
  auto* to = reinterpret_cast<float*>(out.data());
  EXPECT_EQ(cudaLaunchKernelEx(&config, it.kernel, from, to, it.n), cudaSuccess);
  const cudaError_t status = cudaStreamSynchronize(stream.get());
  (void)cudaGetLastError();
  if (status != cudaSuccess) return {cudaGetErrorString(status), {}};
  return {"", Numbers(to, to + it.outputs)};
}

std::vector<Outcome> in_every_order(const Case& it) {
  std::vector<Outcome> all;
  for (const Order order : {Order::forward, Order::reverse}) {
    config().order = order;
    all.push_back(outcome(it));
  }
  config().order = Order::random;
  for (const uint64_t seed : {1, 2, 3}) {
    config().seed = seed;
    all.push_back(outcome(it));
  }
  config() = {};
  return all;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_right(const Case& it, const Numbers& wanted) {
  for (const Outcome& o : in_every_order(it)) {
    EXPECT_EQ(o.error, "");
    EXPECT_EQ(o.out, wanted);
  }
}

// Expects an error that names the bug, the line of the file, and the thread.
void expect_reported(const Case& it, const std::string& part) {
  for (const Outcome& o : in_every_order(it)) {
    EXPECT_TRUE(contains(o.error, part)) << "error: " << o.error;
    EXPECT_TRUE(contains(o.error, "planted_bugs.h:")) << o.error;
    EXPECT_TRUE(contains(o.error, " thread (")) << o.error;
  }
}

// Expects that some order of the threads gives a wrong result; or, with the race checker, that
// every order is reported.
void expect_race(const Case& it, const Numbers& wanted) {
  if (watcher) return expect_reported(it, "race: a thread ");
  bool wrong = false;
  for (const Outcome& o : in_every_order(it)) wrong = wrong || o.out != wanted;
  EXPECT_TRUE(wrong);
}

// An address outside of memory ends the program, under AddressSanitizer.
#define EXPECT_BAD_ADDRESS(it)                                             \
  if (!finds_bad_addresses) GTEST_SKIP() << "this needs AddressSanitizer"; \
  GTEST_FLAG_SET(death_test_style, "threadsafe");                          \
  EXPECT_DEATH(outcome(it), "AddressSanitizer|out of bounds")

template <Bug bug>
Case sum_case() {
  return {.kernel = sum<bug>, .n = 1001};
}
template <Bug bug>
Case reverse_case() {
  return {.kernel = reverse<bug>, .n = 256, .shared = 256 * sizeof(float), .outputs = 256};
}
template <Bug bug>
Case tail_case() {
  return {.kernel = sum_with_tail<bug>, .n = 90, .threads = 100, .outputs = 4};
}
template <Bug bug>
Case exchange_case() {
  return {.kernel = exchange<bug>, .n = 32, .threads = 32, .outputs = 32};
}
template <Bug bug>
Case rows_case() {
  return {.kernel = sum_of_rows<bug>,
          .n = 31,
          .blocks = 4,
          .threads = 32,
          .inputs = 31 * 32,
          .outputs = 32};
}
template <Bug bug>
Case copy_case() {
  return {.kernel = copy<bug>, .n = 1001, .blocks = 2, .threads = 128, .outputs = 1001};
}

template <Bug bug>
Case bytes_case() {
  return {.kernel = write_bytes<bug>, .n = 32, .threads = 32, .outputs = 8};
}

template <Bug bug>
Case product_case() {
  return {.kernel = multiply<bug>, .n = 384, .threads = 32, .outputs = 128};
}
template <Bug bug>
Case reverse_copies_case() {
  return {.kernel = reverse_copies<bug>,
          .n = 256,
          .threads = 64,
          .shared = 128 * sizeof(float),
          .outputs = 256};
}

Numbers the_bytes() {
  Numbers all(8);
  for (int i = 0; i < 32; ++i) {
    reinterpret_cast<int8_t*>(all.data())[i] = static_cast<int8_t>(input(i));
  }
  return all;
}
Numbers the_product() {
  Numbers all(128);
  for (int i = 0; i < 128; ++i) {
    for (int k = 0; k < 16; ++k) {
      all[static_cast<size_t>(i)] += input(i / 8 * 16 + k) * input(256 + k * 8 + i % 8);
    }
  }
  return all;
}
Numbers the_sum() {
  float all = 0;
  for (int i = 0; i < 1001; ++i) all += 3 * input(i);
  return {all};
}
Numbers reversed() {
  Numbers all(256);
  for (int i = 0; i < 256; ++i) all[static_cast<size_t>(i)] = input(255 - i);
  return all;
}
Numbers exchanged() {
  Numbers all(32);
  for (int i = 0; i < 32; ++i) all[static_cast<size_t>(i)] = input((i + 5) % 32);
  return all;
}

TEST(RightKernel, Sum) { expect_right(sum_case<Bug::none>(), the_sum()); }

TEST(RightKernel, Reverse) { expect_right(reverse_case<Bug::none>(), reversed()); }

TEST(RightKernel, SumWithTail) {
  Numbers wanted(4);
  for (int i = 0; i < 90; ++i) wanted[static_cast<size_t>(i / 32)] += input(i);
  expect_right(tail_case<Bug::none>(), wanted);
}

TEST(RightKernel, Exchange) { expect_right(exchange_case<Bug::none>(), exchanged()); }

TEST(RightKernel, SumOfRows) {
  Numbers wanted(32);
  for (int i = 0; i < 31 * 32; ++i) wanted[static_cast<size_t>(i % 32)] += input(i);
  expect_right(rows_case<Bug::none>(), wanted);
}

TEST(RightKernel, Copy) {
  Numbers wanted(1001);
  for (int i = 0; i < 1001; ++i) wanted[static_cast<size_t>(i)] = input(i);
  expect_right(copy_case<Bug::none>(), wanted);
}

// As bits: some are NaN as numbers.
TEST(RightKernel, WriteBytes) {
  for (const Outcome& o : in_every_order(bytes_case<Bug::none>())) {
    EXPECT_EQ(o.error, "");
    EXPECT_EQ(std::memcmp(o.out.data(), the_bytes().data(), 32), 0);
  }
}

TEST(RightKernel, Multiply) { expect_right(product_case<Bug::none>(), the_product()); }

TEST(RightKernel, ReverseCopies) { expect_right(reverse_copies_case<Bug::none>(), reversed()); }

TEST(PlantedBug, ProductOfHalf) {
  expect_reported(product_case<Bug::product_of_half>(), "warp operation");
}

TEST(PlantedBug, MisalignedMatrix) {
  expect_reported(product_case<Bug::misaligned_matrix>(), "misaligned");
}

TEST(PlantedBug, NoBarrierBeforeMatrix) {
  expect_race(product_case<Bug::no_barrier_before_matrix>(), the_product());
}

// What has not arrived is NaN.
TEST(PlantedBug, NoWaitForCopies) {
  for (const Outcome& o : in_every_order(reverse_copies_case<Bug::no_wait_for_copies>())) {
    EXPECT_TRUE(watcher || std::isnan(o.out.at(255)));
    EXPECT_NE(o.out, reversed());
  }
}

TEST(PlantedBug, NoWaitForTheLastCopies) {
  for (const Outcome& o : in_every_order(reverse_copies_case<Bug::no_wait_for_last_copies>())) {
    EXPECT_TRUE(watcher || std::isnan(o.out.at(128)));
    EXPECT_NE(o.out, reversed());
  }
}

TEST(PlantedBug, NoBarrierAfterCopies) {
  expect_race(reverse_copies_case<Bug::no_barrier_after_copies>(), reversed());
}

TEST(PlantedBug, CopiesTooEarly) {
  expect_race(reverse_copies_case<Bug::copies_too_early>(), reversed());
}

TEST(PlantedBug, NoBarrierBeforeReading) {
  expect_race(sum_case<Bug::no_barrier_before_reading>(), the_sum());
}

TEST(PlantedBug, NoBarrierBeforeWriting) {
  expect_race(sum_case<Bug::no_barrier_before_writing>(), the_sum());
}

TEST(PlantedBug, BarrierOfWarpOnly) {
  expect_race(reverse_case<Bug::barrier_of_warp_only>(), reversed());
}

TEST(PlantedBug, NoBarrierOfWarp) {
  expect_race(exchange_case<Bug::no_barrier_of_warp>(), exchanged());
}

TEST(PlantedBug, SharesAByte) { expect_race(bytes_case<Bug::shares_a_byte>(), the_bytes()); }

TEST(PlantedBug, AddsWithoutAtomic) {  // blocks run in turn, so the result is right
  if (!watcher) GTEST_SKIP() << "this needs the race checker";
  for (const Outcome& o : in_every_order(rows_case<Bug::adds_without_atomic>())) {
    EXPECT_TRUE(contains(o.error, "of another block writes at ")) << o.error;
  }
}

TEST(PlantedBug, ReadsUnwritten) {
  Case it = sum_case<Bug::reads_unwritten>();
  it.threads = 128;
  for (const Outcome& o : in_every_order(it)) EXPECT_TRUE(std::isnan(o.out.at(0)));
}

TEST(PlantedBug, BarrierForSome) {
  expect_reported(sum_case<Bug::barrier_for_some>(),
                  "divergent barrier: threads of one block meet");
}

TEST(PlantedBug, BarrierInTwoPlaces) {
  expect_reported(sum_case<Bug::barrier_in_two_places>(),
                  "divergent barrier: threads of one block meet");
}

TEST(PlantedBug, LeavesEarly) {
  expect_reported(sum_case<Bug::leaves_early>(), "divergent barrier: ");
}

TEST(PlantedBug, Deadlock) {
  expect_reported({.kernel = wait_for_one_another, .n = 1, .threads = 32},
                  "deadlock: from thread 0");
}

TEST(PlantedBug, TooMuchSharedMemory) {
  expect_reported({.kernel = ask_for_much, .n = 1, .threads = 1}, "more shared memory than");
}

TEST(PlantedBug, MaskOfHalf) { expect_reported(sum_case<Bug::mask_of_half>(), "warp operation: "); }

TEST(PlantedBug, SumOfHalf) {  // wrong arithmetic, legal CUDA
  for (const Outcome& o : in_every_order(sum_case<Bug::sum_of_half>())) EXPECT_NE(o.out, the_sum());
}

TEST(PlantedBug, ShufflesApart) {
  expect_reported(sum_case<Bug::shuffles_apart>(), "lanes have diverged");
}

TEST(PlantedBug, MaskPastTheBlock) {
  expect_reported(tail_case<Bug::mask_past_the_block>(), "the mask names lanes beyond the block");
}

TEST(PlantedBug, LanesLeave) { expect_reported(tail_case<Bug::lanes_leave>(), "warp operation"); }

TEST(PlantedBug, MisalignedVector) {
  expect_reported(copy_case<Bug::misaligned_vector>(), "misaligned vector access");
}

TEST(PlantedBug, WritesPastShared) {
  if (!finds_bad_addresses) {
    for (const Outcome& o : in_every_order(sum_case<Bug::writes_past_shared>())) {
      EXPECT_TRUE(contains(o.error, "write to shared memory near 'sums' [block")) << o.error;
    }
    return;
  }
  EXPECT_BAD_ADDRESS(sum_case<Bug::writes_past_shared>());
}

TEST(PlantedBug, WritesPastDynamic) {
  if (!finds_bad_addresses) {
    for (const Outcome& o : in_every_order(reverse_case<Bug::writes_past_dynamic>())) {
      EXPECT_TRUE(contains(o.error, "write to shared memory near 'dynamic' [block")) << o.error;
    }
    return;
  }
  EXPECT_BAD_ADDRESS(reverse_case<Bug::writes_past_dynamic>());
}

TEST(PlantedBug, ReadsPastTheEnd) { EXPECT_BAD_ADDRESS(sum_case<Bug::reads_past_the_end>()); }

TEST(PlantedBug, VectorPastTheEnd) { EXPECT_BAD_ADDRESS(copy_case<Bug::vector_past_the_end>()); }

}  // namespace
}  // namespace emulator::planted
