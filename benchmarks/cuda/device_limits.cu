// Measures on a GPU what no emulator tells, without Spool: rates of copies; whether host functions
// of two streams run at a time; direct input and output with pinned memory; what a capture refuses;
// a limit of shared memory that is lowered after a capture; the time between kernels of a graph.
//
//   nvcc -O2 -std=c++17 -arch=sm_90 device_limits.cu -o device_limits && ./device_limits

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "timing.cuh"

__global__ void nothing() {}
__global__ void uses_shared(float* out) {
  extern __shared__ float s[];
  s[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

static void copy_rate() {
  constexpr size_t bytes = size_t{2} << 30;
  void *a = memory(bytes, 1), *b = memory(bytes, 2);
  const double ms =
      ms_of([&] { CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream)); }, 4);
  std::printf("copy within the device: %.2f TB/s read+written\n", 2 * double(bytes) / ms / 1e9);
  for (size_t mib : {1, 16, 48, 512}) {
    void* host = nullptr;
    CHECK(cudaMallocHost(&host, mib << 20));
    const double out = ms_of(
        [&] { CHECK(cudaMemcpyAsync(host, a, mib << 20, cudaMemcpyDeviceToHost, stream)); }, 8);
    const double in = ms_of(
        [&] { CHECK(cudaMemcpyAsync(a, host, mib << 20, cudaMemcpyHostToDevice, stream)); }, 8);
    std::printf("link, %4zu MiB: out %.1f GB/s, in %.1f GB/s\n", mib, double(mib << 20) / out / 1e6,
                double(mib << 20) / in / 1e6);
    CHECK(cudaFreeHost(host));
  }
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
}

static void begin_capture() {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static cudaGraphExec_t end_capture() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

// Ends a capture that may have failed; the error is printed.
static void print_end_of_capture() {
  cudaGraph_t graph = nullptr;
  std::printf(", ends: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
  (void)cudaGetLastError();
}

static void refusals() {
  std::printf("\ncapture\n");
  cudaStream_t side;
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  cudaEvent_t before, fork;
  CHECK(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventRecord(before, side));
  begin_capture();
  std::printf("  waits for an event of before: %s",
              cudaGetErrorName(cudaStreamWaitEvent(stream, before, 0)));
  print_end_of_capture();
  for (const bool work : {true, false}) {
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    begin_capture();
    nothing<<<1, 32, 0, stream>>>();
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    if (work) nothing<<<1, 32, 0, side>>>();
    nothing<<<1, 32, 0, stream>>>();
    std::printf("  a fork %s work that is not joined", work ? "with" : "without");
    print_end_of_capture();
  }
  begin_capture();
  void* p = nullptr;
  std::printf("  cudaMalloc in it: %s", cudaGetErrorName(cudaMalloc(&p, 1 << 20)));
  std::printf(", cudaMallocHost: %s", cudaGetErrorName(cudaMallocHost(&p, 1 << 20)));
  print_end_of_capture();
}

static void replays() {
  float* out = nullptr;
  CHECK(cudaMalloc(&out, 4096));
  constexpr auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
  CHECK(cudaFuncSetAttribute(uses_shared, limit, 200 << 10));
  begin_capture();
  uses_shared<<<1, 256, 200 << 10, stream>>>(out);
  cudaGraphExec_t exec = end_capture();
  CHECK(cudaFuncSetAttribute(uses_shared, limit, 50 << 10));
  CHECK(cudaGraphLaunch(exec, stream));
  std::printf("  replay after the limit of shared memory was lowered: %s\n",
              cudaGetErrorName(cudaStreamSynchronize(stream)));
  begin_capture();
  for (int i = 0; i < 600; ++i) nothing<<<132, 256, 0, stream>>>();
  exec = end_capture();
  const double ms = ms_of([&] { CHECK(cudaGraphLaunch(exec, stream)); }, 10);
  std::printf("  600 kernels with nothing to do in a graph: %.2f us each\n", ms * 1e3 / 600);
  const double apart = ms_of([&] { nothing<<<132, 256, 0, stream>>>(); }, 600);
  std::printf("  launched one by one: %.2f us each\n", apart * 1e3);
}

static void host_functions() {
  cudaStream_t two[2];
  for (auto& s : two) CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  const auto start = std::chrono::steady_clock::now();
  for (auto& s : two)
    CHECK(cudaLaunchHostFunc(
        s, [](void*) { ::usleep(100'000); }, nullptr));
  for (auto& s : two) CHECK(cudaStreamSynchronize(s));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("\ntwo host functions of 100 ms in two streams: %.0f ms (200: one after the other)\n",
              took.count() * 1e3);
}

static void direct_io() {
  constexpr size_t bytes = size_t{64} << 20;
  void *pinned = nullptr, *own = nullptr;
  CHECK(cudaMallocHost(&pinned, bytes));
  own = std::aligned_alloc(4096, bytes);
  CHECK(cudaHostRegister(own, bytes, cudaHostRegisterDefault));
  for (const char* directory : {".", "/tmp"}) {
    const std::string name = std::string(directory) + "/device_limits.tmp";
    const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (file < 0) {
      std::printf("O_DIRECT in %s: %s\n", directory, std::strerror(errno));
      continue;
    }
    for (auto [what, from] : {std::pair{"cudaMallocHost", pinned}, {"cudaHostRegister", own}}) {
      const auto start = std::chrono::steady_clock::now();
      const ssize_t n = ::pwrite(file, from, bytes, 0), error = errno;
      const ssize_t m = n > 0 ? ::pread(file, from, bytes, 0) : -1;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      std::printf("O_DIRECT in %s, memory of %s: wrote %zd%s%s, read %zd, %.2f GB/s\n", directory,
                  what, n, n < 0 ? " " : "", n < 0 ? std::strerror(int(error)) : "", m,
                  2 * double(bytes) / took.count() / 1e9);
    }
    ::close(file);
    ::unlink(name.c_str());
  }
}

int main() {
  open_device();
  copy_rate();
  host_functions();
  direct_io();
  refusals();
  replays();
}
