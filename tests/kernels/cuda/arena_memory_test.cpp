// runs: emulator
// The memory of a CUDA device's arena: virtual memory of whole pages, what is left beside it, and
// devices that have none.

#include "spool/runtime/cuda/arena_memory.h"

#include "spool/runtime/cuda/device.h"
#include "spool/runtime/memory/poison.h"
#include "tests/kernels/cuda_testing.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/virtual_memory.h"
#endif

namespace spool::testing {
namespace {

class CudaArenas : public OnCuda {};

#if SPOOL_CUDA

constexpr size_t odd_budget = 5 * Arena::granule;

TEST_F(CudaArenas, AreWholePagesThatHoldTheBudget) {
  const size_t page = cuda_device(0).page_bytes;
  for (const size_t budget : {odd_budget, page, page + Arena::granule}) {
    CudaStream stream(0, budget);
    const cuda::ArenaMemory& memory = cuda::arena_memory(stream);
    EXPECT_EQ(stream.memory().capacity, budget) << "the arena is the budget";
    EXPECT_EQ(memory.reserved(), budget <= page ? page : 2 * page);
    EXPECT_EQ(memory.why_not_shared(), "");
    CudaStream side(stream);
    EXPECT_EQ(&cuda::arena_memory(side), &memory);
    const Tensor all({Shape{static_cast<int64_t>(budget / sizeof(float))}}, stream);
    EXPECT_EQ(all.view().data(), memory.data());
    launch(Fill{.out = all, .value = 3}, stream);
    EXPECT_EQ(values(all).back(), 3);
  }
  EXPECT_EQ(cuda_device(0).bytes_for_an_arena() % page, 0u);
}

#if SPOOL_CUDA_EMULATED

class EmulatedCudaArenas : public CudaArenas {
 protected:
  ~EmulatedCudaArenas() override {
    emulator::device() = usual_;
    emulator::virtual_memory_kind() = {};
    EXPECT_EQ(emulator::count_virtual_memory(), before_);
    EXPECT_EQ(emulator::used_bytes(0), used_);
  }
  // A stream whose arena is cudaMalloc's, for a reason that it says.
  void expect_usual_memory(const std::string& reason) const {
    CudaStream stream(0, odd_budget);
    EXPECT_EQ(emulator::count_virtual_memory(), before_) << reason;
    EXPECT_EQ(emulator::used_bytes(0), used_ + odd_budget);
    EXPECT_TRUE(contains(stream.description(), "an arena that ranks cannot share"));
    EXPECT_TRUE(contains(stream.description(), reason)) << stream.description();
    const Tensor all({Shape{odd_budget / sizeof(float)}}, stream);
    launch(Fill{.out = all, .value = 3}, stream);
    EXPECT_EQ(values(all).back(), 3);
  }

  const emulator::Device usual_ = emulator::device();
  const emulator::VirtualMemoryCount before_ = emulator::count_virtual_memory();
  const size_t used_ = emulator::used_bytes(0);
};

TEST_F(EmulatedCudaArenas, AreMemoryThatOtherProcessesMayMap) {
  for (const int index : {0, 1}) {
    CudaStream stream(index, odd_budget);
    const cuda::ArenaMemory& memory = cuda::arena_memory(stream);
    const auto mapping = emulator::mapping_of(memory.data() + Arena::granule);
    ASSERT_TRUE(mapping);
    EXPECT_EQ(mapping->begin, memory.data());
    EXPECT_EQ(mapping->bytes, memory.reserved());
    EXPECT_EQ(mapping->device, index);
    EXPECT_GE(mapping->file, 0);
    EXPECT_TRUE(mapping->has_access);
    EXPECT_EQ(emulator::count_virtual_memory().handles, before_.handles);
  }
}

TEST_F(EmulatedCudaArenas, LeaveNothingWhenACallFails) {
  for (const char* call : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    emulator::virtual_memory_kind().failing_call = call;
    expect_usual_memory(call);
  }
}

TEST_F(EmulatedCudaArenas, AreOfCudaMallocWhereThereIsNoOther) {
  emulator::virtual_memory_kind().shares_files = false;
  expect_usual_memory("shares no memory between processes");
  emulator::virtual_memory_kind().exists = false;
  expect_usual_memory("has no virtual memory");
}

TEST_F(EmulatedCudaArenas, DoWithoutGpuDirect) {
  emulator::virtual_memory_kind().gpu_direct = false;
  CudaStream stream(0, odd_budget);
  EXPECT_EQ(cuda::arena_memory(stream).why_not_shared(), "");
}

TEST_F(EmulatedCudaArenas, MustFitInWholePages) {
  const size_t left = cuda_library_bytes / 2, page = cuda_page_bytes;
  emulator::device().bytes = used_ + left + page - 1;
  expect_error(ErrorKind::memory, {"cuda:0: the budget"}, [] { CudaStream(0, odd_budget); });
  emulator::device().bytes = used_ + left + page;
  EXPECT_EQ(CudaStream(0, odd_budget).memory().capacity, odd_budget);
  emulator::device().bytes = used_ + cuda_library_bytes + 2 * page - 1;
  EXPECT_EQ(device_memory({DeviceType::cuda}), page);
}

TEST_F(EmulatedCudaArenas, AreNotWrittenBehindTheBudget) {
  if (!bounds_are_checked) GTEST_SKIP() << "only AddressSanitizer sees it";
  CudaStream stream(0, odd_budget);
  std::byte* const behind = cuda::arena_memory(stream).data() + odd_budget;
  EXPECT_DEATH(*behind = std::byte{1}, "use-after-poison");
}

#endif
#endif

}  // namespace
}  // namespace spool::testing
