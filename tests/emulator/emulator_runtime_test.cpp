// runs: threads
// The emulated runtime keeps CUDA's promises about streams, events, graphs and launches, and no
// more: host code that relies on more gets wrong numbers here.

#include "spool/runtime/cuda/handles.cuh"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

using cuda::DeviceMemory;
using cuda::PinnedMemory;
using cuda::StreamHandle;

constexpr int count = 64;
constexpr size_t bytes = count * sizeof(int);

// Restores the emulated device after each test.
class EmulatedRuntime : public ::testing::Test {
 protected:
  ~EmulatedRuntime() override {
    emulator::device() = {};
    (void)cudaSetDevice(0);
    (void)cudaGetLastError();
  }
};

int* integers_of(const DeviceMemory& memory) { return reinterpret_cast<int*>(memory.data()); }
int* integers_of(const PinnedMemory& memory) { return reinterpret_cast<int*>(memory.data()); }

__global__ void fill(int* out, int value) { out[threadIdx.x] = value; }

__global__ void add(int* out, const int* in, int value) {
  out[threadIdx.x] = in[threadIdx.x] + value;
}

__global__ void touch_dynamic(int* out) {
  auto* shared = static_cast<int*>(emulator::dynamic_shared());
  shared[threadIdx.x] = 1;
  out[threadIdx.x] = shared[threadIdx.x];
}

__global__ void diverge(int* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
}

template <class... P, class... A>
cudaError_t start(const StreamHandle& stream, void (*kernel)(P...), const A&... arguments) {
  const cudaLaunchConfig_t config{
      .gridDim = 1, .blockDim = count, .dynamicSmemBytes = 0, .stream = stream.get()};
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

cudaError_t start_with(dim3 grid, dim3 block, size_t shared, int* out) {
  const StreamHandle stream = cuda::make_stream();
  const cudaLaunchConfig_t config{
      .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared, .stream = stream.get()};
  return cudaLaunchKernelEx(&config, touch_dynamic, out);
}

void wait_for(const StreamHandle& stream) {
  ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
}

cuda::EventHandle record_on(const StreamHandle& stream) {
  cuda::EventHandle event = cuda::make_event();
  EXPECT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  return event;
}

void make_wait(const StreamHandle& stream, const cuda::EventHandle& event) {
  EXPECT_EQ(cudaStreamWaitEvent(stream.get(), event.get(), 0), cudaSuccess);
}

// The number that one stream reads while another writes 7.
int read_across_streams(bool with_event) {
  const DeviceMemory memory(bytes);
  const PinnedMemory host(bytes);
  const StreamHandle writer = cuda::make_stream(), reader = cuda::make_stream();
  EXPECT_EQ(start(writer, fill, integers_of(memory), 7), cudaSuccess);
  if (with_event) make_wait(reader, record_on(writer));
  EXPECT_EQ(
      cudaMemcpyAsync(host.data(), memory.data(), bytes, cudaMemcpyDeviceToHost, reader.get()),
      cudaSuccess);
  wait_for(reader);
  return integers_of(host)[count - 1];
}

TEST_F(EmulatedRuntime, ShowsAMissingEventBetweenStreams) {
  EXPECT_EQ(read_across_streams(/*with_event=*/false), 0);
  EXPECT_EQ(read_across_streams(/*with_event=*/true), 7);
}

TEST_F(EmulatedRuntime, AnEagerDeviceHidesAMissingEvent) {
  emulator::device().schedule = emulator::Schedule::eager;
  EXPECT_EQ(read_across_streams(/*with_event=*/false), 7);
}

// The number that the device gets from host memory that is overwritten after the copy is enqueued.
int upload_and_overwrite(bool wait) {
  const StreamHandle stream = cuda::make_stream();
  const DeviceMemory memory(bytes);
  const PinnedMemory host(bytes);
  std::fill_n(integers_of(host), count, 1);
  EXPECT_EQ(
      cudaMemcpyAsync(memory.data(), host.data(), bytes, cudaMemcpyHostToDevice, stream.get()),
      cudaSuccess);
  const cuda::EventHandle taken = record_on(stream);
  if (wait) cudaEventSynchronize(taken.get());
  std::fill_n(integers_of(host), count, 2);
  wait_for(stream);
  return integers_of(memory)[0];
}

TEST_F(EmulatedRuntime, ShowsHostMemoryOverwrittenTooEarly) {
  EXPECT_EQ(upload_and_overwrite(/*wait=*/false), 2);
  EXPECT_EQ(upload_and_overwrite(/*wait=*/true), 1);
}

TEST_F(EmulatedRuntime, AGraphRunsAtEachLaunchAndNotAtItsCapture) {
  const StreamHandle stream = cuda::make_stream(), side = cuda::make_stream();
  const DeviceMemory a(bytes), b(bytes);
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  start(stream, add, integers_of(a), integers_of(a), 1);
  make_wait(side, record_on(stream));  // joins the capture
  start(side, add, integers_of(b), integers_of(a), 10);
  make_wait(stream, record_on(side));
  start(stream, add, integers_of(b), integers_of(b), 100);
  cuda::GraphHandle graph;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), graph.out()), cudaSuccess);
  wait_for(stream);
  wait_for(side);  // has left the capture
  EXPECT_EQ(integers_of(b)[0], 0);

  cuda::GraphExecHandle executable;
  ASSERT_EQ(cudaGraphInstantiate(executable.out(), graph.get(), 0), cudaSuccess);
  for (const int time : {1, 2}) {
    ASSERT_EQ(cudaGraphLaunch(executable.get(), stream.get()), cudaSuccess);
    wait_for(stream);
    EXPECT_EQ(integers_of(b)[count - 1], time + 110);
  }
}

// What ends a capture on which `body` ran, with a second stream and an event recorded before.
cudaError_t end_of_capture(
    const std::function<void(const StreamHandle&, const StreamHandle&, cudaEvent_t)>& body) {
  const StreamHandle stream = cuda::make_stream(), side = cuda::make_stream();
  const cuda::EventHandle before = record_on(side);
  EXPECT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  body(stream, side, before.get());
  cuda::GraphHandle graph;
  const cudaError_t status = cudaStreamEndCapture(stream.get(), graph.out());
  EXPECT_EQ(graph.get() != nullptr, status == cudaSuccess);
  return status;
}

TEST_F(EmulatedRuntime, ACaptureMayNotWaitForAnEarlierEvent) {
  EXPECT_EQ(end_of_capture([](const auto& stream, const auto&, cudaEvent_t before) {
              EXPECT_EQ(cudaStreamWaitEvent(stream.get(), before, 0),
                        cudaErrorStreamCaptureIsolation);
            }),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedRuntime, TheHostMayNotWaitForACapture) {
  EXPECT_EQ(end_of_capture([](const auto& stream, const auto&, cudaEvent_t) {
              EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedRuntime, EveryStreamOfACaptureIsJoined) {
  const DeviceMemory memory(bytes);
  const auto forked = [&](bool joins, bool works_after) {
    return end_of_capture([&](const auto& stream, const auto& side, cudaEvent_t) {
      start(stream, fill, integers_of(memory), 1);
      make_wait(side, record_on(stream));
      start(side, fill, integers_of(memory), 2);
      if (joins) make_wait(stream, record_on(side));
      if (works_after) start(side, fill, integers_of(memory), 3);
    });
  };
  EXPECT_EQ(forked(true, false), cudaSuccess);
  EXPECT_EQ(forked(false, false), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(forked(true, true), cudaErrorStreamCaptureUnjoined);
}

TEST_F(EmulatedRuntime, TwoCapturesDoNotMeet) {
  const StreamHandle other = cuda::make_stream();
  EXPECT_EQ(end_of_capture([&](const auto& stream, const auto&, cudaEvent_t) {
              ASSERT_EQ(cudaStreamBeginCapture(other.get(), cudaStreamCaptureModeThreadLocal),
                        cudaSuccess);
              const cuda::EventHandle event = record_on(other);
              EXPECT_EQ(cudaStreamWaitEvent(stream.get(), event.get(), 0),
                        cudaErrorStreamCaptureMerge);
            }),
            cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other.get(), &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedRuntime, ACaptureNeitherTakesNorGivesBackMemory) {
  void *memory = nullptr, *host = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&host, bytes), cudaSuccess);
  void* more = nullptr;
  const std::function<cudaError_t()> calls[] = {
      [&] { return cudaMalloc(&more, bytes); }, [&] { return cudaMallocHost(&more, bytes); },
      [&] { return cudaFree(memory); }, [&] { return cudaFreeHost(host); }};
  for (const auto& call : calls) {
    EXPECT_EQ(end_of_capture([&](const auto&, const auto&, cudaEvent_t) {
                EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
              }),
              cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

// The side stream adds to what the first stream fills; the event in between is what a graph needs.
TEST_F(EmulatedRuntime, AGraphShowsAnEventThatIsMissing) {
  const DeviceMemory a(bytes), b(bytes);
  const auto numbers = [&](bool waits_for_it) {
    const StreamHandle stream = cuda::make_stream(), side = cuda::make_stream();
    EXPECT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    make_wait(side, record_on(stream));
    start(stream, fill, integers_of(a), 7);
    if (waits_for_it) make_wait(side, record_on(stream));
    start(side, add, integers_of(b), integers_of(a), 1);
    make_wait(stream, record_on(side));
    cuda::GraphHandle graph;
    EXPECT_EQ(cudaStreamEndCapture(stream.get(), graph.out()), cudaSuccess);
    cuda::GraphExecHandle executable;
    EXPECT_EQ(cudaGraphInstantiate(executable.out(), graph.get(), 0), cudaSuccess);
    std::vector<int> found;
    for (int launch = 0; launch < 2; ++launch) {
      start(stream, fill, integers_of(a), 0);
      EXPECT_EQ(cudaGraphLaunch(executable.get(), stream.get()), cudaSuccess);
      wait_for(stream);
      found.push_back(integers_of(b)[0]);
    }
    return found;
  };
  EXPECT_EQ(numbers(true), (std::vector<int>{8, 8}));
  EXPECT_EQ(numbers(false), (std::vector<int>{8, 1}));
}

TEST_F(EmulatedRuntime, RefusesTheLaunchesThatCudaRefuses) {
  const DeviceMemory memory(1024 * sizeof(int));
  int* out = integers_of(memory);
  EXPECT_EQ(start_with(1, 1024, 4096, out), cudaSuccess);
  const dim3 bad_blocks[] = {dim3(0), dim3(1025), dim3(32, 33), dim3(1, 1, 65)};
  for (const dim3 block : bad_blocks) {
    EXPECT_EQ(start_with(1, block, 0, out), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  }
  const dim3 bad_grids[] = {dim3(0), dim3(1u << 31), dim3(1, 65536), dim3(1, 1, 65536)};
  for (const dim3 grid : bad_grids) {
    EXPECT_EQ(start_with(grid, 32, 0, out), cudaErrorInvalidConfiguration);
  }
}

TEST_F(EmulatedRuntime, MoreThan48KiBOfSharedMemoryNeedsAnAttribute) {
  const DeviceMemory memory(bytes);
  const auto ask = [](int size) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(touch_dynamic),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  };
  constexpr size_t large = 100 << 10;
  EXPECT_EQ(start_with(1, 32, large, integers_of(memory)), cudaErrorInvalidValue);
  EXPECT_EQ(ask(228 << 10), cudaErrorInvalidValue);
  EXPECT_EQ(ask(large), cudaSuccess);
  EXPECT_EQ(start_with(1, 32, large, integers_of(memory)), cudaSuccess);
  EXPECT_EQ(start_with(1, 32, large + 1, integers_of(memory)), cudaErrorInvalidValue);
}

TEST_F(EmulatedRuntime, AFailedKernelIsReportedByEveryLaterCallOfItsStream) {
  const StreamHandle stream = cuda::make_stream(), after = cuda::make_stream(),
                     other = cuda::make_stream();
  const DeviceMemory memory(bytes);
  start(stream, diverge, integers_of(memory));
  make_wait(after, record_on(stream));
  for (const StreamHandle* each : {&stream, &after}) {
    start(*each, fill, integers_of(memory), 7);
    EXPECT_EQ(cudaStreamSynchronize(each->get()), cudaErrorLaunchFailure);
    const std::string said = cudaGetErrorString(cudaErrorLaunchFailure);
    EXPECT_TRUE(contains(said, "divergent barrier")) << said;
    EXPECT_TRUE(contains(said, "emulator_runtime_test.cpp:")) << said;
    EXPECT_TRUE(contains(said, "[block (0,0,0) thread (")) << said;
    EXPECT_EQ(start(*each, fill, integers_of(memory), 7), cudaErrorLaunchFailure);
  }
  EXPECT_EQ(integers_of(memory)[0], 0);
  start(other, fill, integers_of(memory), 8);
  wait_for(other);
  EXPECT_EQ(integers_of(memory)[0], 8);
}

TEST_F(EmulatedRuntime, ACudaStreamNamesTheFailedKernel) {
  const auto stream = cuda_stream();
  auto& cuda = static_cast<CudaStream&>(*stream);
  const Tensor x({Shape{count}, DType::i32}, *stream);
  const cudaLaunchConfig_t config{.gridDim = 1,
                                  .blockDim = count,
                                  .dynamicSmemBytes = 0,
                                  .stream = static_cast<cudaStream_t>(cuda.native())};
  cuda.enqueue("diverge", [&] { (void)cudaLaunchKernelEx(&config, diverge, x.view().as<int>()); });
  for (int call = 0; call < 2; ++call) {
    expect_error(ErrorKind::device, {"diverge", "divergent barrier"},
                 [&] { stream->synchronize(); });
  }
}

}  // namespace
}  // namespace spool::testing
