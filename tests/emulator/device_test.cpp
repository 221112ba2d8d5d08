// runs: threads
// The emulated devices: what belongs to one of them, what its kernels may have of shared memory,
// and what CUDA does with events of captures and with host functions.

#include <thread>

#include "spool/runtime/cuda/handles.cuh"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

using cuda::DeviceMemory;
using cuda::EventHandle;
using cuda::GraphHandle;
using cuda::StreamHandle;

constexpr size_t room = 1024;

class EmulatedDevices : public ::testing::Test {
 protected:
  ~EmulatedDevices() override {
    (void)cudaSetDevice(0);
    (void)cudaGetLastError();
  }
};

// Device 1 while it lives, then device 0.
struct OnSecond {
  OnSecond() { EXPECT_EQ(cudaSetDevice(1), cudaSuccess); }
  ~OnSecond() { EXPECT_EQ(cudaSetDevice(0), cudaSuccess); }
};

int current_device() {
  int index = -1;
  EXPECT_EQ(cudaGetDevice(&index), cudaSuccess);
  return index;
}

__global__ void write_one(int* out) { *out = 1; }

// 40 KiB, and what the launch asks for.
__global__ void declare_much(int* out) {
  EMULATOR_SHARED(int[10 << 10], much);
  much[0] = 1;
  *out = much[0];
}

template <class Kernel>
cudaError_t start(const StreamHandle& stream, Kernel kernel, int* out, size_t shared = 0) {
  const cudaLaunchConfig_t config{
      .gridDim = 1, .blockDim = 1, .dynamicSmemBytes = shared, .stream = stream.get()};
  return cudaLaunchKernelEx(&config, kernel, out);
}

int* number_in(const DeviceMemory& memory) { return reinterpret_cast<int*>(memory.data()); }

TEST_F(EmulatedDevices, EachThreadHasItsCurrentOne) {
  const OnSecond here;
  int of_another = -1;
  std::thread([&] { of_another = current_device(); }).join();
  EXPECT_EQ(of_another, 0);
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(cudaSetDevice(emulator::device().count), cudaErrorInvalidDevice);
  EXPECT_EQ(current_device(), 1);
}

TEST_F(EmulatedDevices, HaveMemoryOfTheirOwn) {
  const size_t first = emulator::used_bytes(0), second = emulator::used_bytes(1);
  const OnSecond here;
  const DeviceMemory memory(room);
  EXPECT_EQ(emulator::used_bytes(0), first);
  EXPECT_EQ(emulator::used_bytes(1), second + room);
}

TEST_F(EmulatedDevices, RefuseStreamsAndEventsOfAnother) {
  const StreamHandle stream = cuda::make_stream();
  const EventHandle event = cuda::make_event();
  const DeviceMemory memory(room);
  const OnSecond here;
  EXPECT_EQ(start(stream, write_one, number_in(memory)), cudaErrorInvalidResourceHandle);
  const StreamHandle second = cuda::make_stream();
  const EventHandle of_second = cuda::make_event();
  EXPECT_EQ(cudaEventRecord(event.get(), second.get()), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(of_second.get(), stream.get()), cudaErrorInvalidResourceHandle);
  // A stream may wait for an event of another device.
  EXPECT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second.get(), event.get(), 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second.get()), cudaSuccess);
  const EventHandle begin = cuda::make_timing_event();
  EXPECT_EQ(cudaEventRecord(begin.get(), second.get()), cudaSuccess);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event.get(), begin.get()),
            cudaErrorInvalidResourceHandle);
}

cudaError_t allow(size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(declare_much),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

// What ends the kernel, with so much dynamic shared memory on the current device.
std::string end_of_much(size_t shared) {
  const StreamHandle stream = cuda::make_stream();
  const DeviceMemory memory(room);
  cudaError_t status = start(stream, declare_much, number_in(memory), shared);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream.get());
  return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

TEST_F(EmulatedDevices, CountWhatAKernelDeclaresTowardsItsLimit) {
  constexpr size_t declared = 40 << 10, kib = 1024;
  EXPECT_EQ(end_of_much(8 * kib), "");
  EXPECT_TRUE(contains(end_of_much(8 * kib + 16), "more shared memory than the 48 KiB static, 48"));
  cudaFuncAttributes attributes{};
  const auto* const kernel = reinterpret_cast<const void*>(declare_much);
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaSuccess);
  EXPECT_EQ(attributes.sharedSizeBytes, declared);
  EXPECT_EQ(allow(227 * kib - declared + 1), cudaErrorInvalidValue);
  EXPECT_EQ(allow(227 * kib - declared), cudaSuccess);
  EXPECT_EQ(end_of_much(227 * kib - declared), "");
  const OnSecond here;  // where nothing was allowed
  EXPECT_EQ(end_of_much(100 * kib), "invalid argument");
}

TEST_F(EmulatedDevices, ACaptureForbidsItsThreadToAskForAnyEvent) {
  const StreamHandle stream = cuda::make_stream(), other = cuda::make_stream();
  const EventHandle before = cuda::make_event();
  EXPECT_EQ(cudaEventRecord(before.get(), other.get()), cudaSuccess);
  for (const bool waits : {false, true}) {
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(waits ? cudaEventSynchronize(before.get()) : cudaEventQuery(before.get()),
              cudaErrorStreamCaptureUnsupported);
    GraphHandle graph;
    EXPECT_EQ(cudaStreamEndCapture(stream.get(), graph.out()), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(cudaEventSynchronize(before.get()), cudaSuccess);
}

TEST_F(EmulatedDevices, AnEventOfACaptureIsOfNoUseAfterIt) {
  const StreamHandle stream = cuda::make_stream(), other = cuda::make_stream();
  const EventHandle inside = cuda::make_event();
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(inside.get(), stream.get()), cudaSuccess);
  GraphHandle graph;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), graph.out()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(inside.get()), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(inside.get()), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other.get(), inside.get(), 0), cudaErrorCapturedEvent);
  // Recorded again, it is one like any other.
  EXPECT_EQ(cudaEventRecord(inside.get(), stream.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other.get(), inside.get(), 0), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(inside.get()), cudaSuccess);
}

TEST_F(EmulatedDevices, HostFunctionsRunOnAThreadOfTheirOwn) {
  const StreamHandle stream = cuda::make_stream();
  std::vector<std::thread::id> threads;
  const auto note = [](void* all) {
    static_cast<std::vector<std::thread::id>*>(all)->push_back(std::this_thread::get_id());
  };
  EXPECT_EQ(cudaLaunchHostFunc(stream.get(), note, &threads), cudaSuccess);
  EXPECT_EQ(cudaLaunchHostFunc(stream.get(), note, &threads), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_EQ(threads[0], threads[1]);
}

}  // namespace
}  // namespace spool::testing
