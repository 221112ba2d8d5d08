#pragma once

// The part of CUDA's runtime API that Spool's host code calls, over the emulated device.
//
// A stream is a queue whose work is done when the host waits for it: as late as CUDA allows, so
// that host code which reuses memory too early, or lacks an event between two streams, gets wrong
// numbers. With the schedule eager it is done at once.
//
// A failure ends its stream: later work on it is dropped, as is work of other streams behind its
// events, and calls report cudaErrorLaunchFailure, which cudaGetErrorString explains with the
// emulator's sentence.  These functions are not thread-safe, but each thread has its current
// device.  What is made belongs to that: kernels are launched, and events recorded, on streams of
// their own device only.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "execution.h"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};
enum cudaComputeMode { cudaComputeModeDefault = 0, cudaComputeModeExclusiveProcess = 3 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;

struct cudaFuncAttributes {
  size_t sharedSizeBytes;  // 0 until the kernel has run: what it declares is known then
};

struct cudaUUID_t {
  char bytes[16];
};

struct cudaDeviceProp {
  cudaUUID_t uuid;
  char name[256];
};
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

namespace emulator {

enum class Schedule { lazy, eager };

constexpr int max_devices = 8, default_devices = 2;

// The emulated devices, which are alike, and which tests may change.
struct Device {
  std::string name = "emulated GPU";
  int count = default_devices, major = 9, minor = 0, multiprocessors = 4;
  int driver = 13000, runtime = 13000;
  size_t bytes = size_t{8} << 30;  // of each
  // What CUDA answers to the first call that needs the device, and to one that needs a kernel.
  cudaError_t context = cudaSuccess, kernels = cudaSuccess;
  Schedule schedule = Schedule::lazy;
  uint64_t fails_at = 0;  // the kernel that fails, counted from 1 on; 0: none
};
// As the environment says at the start: the devices are those of gpus.h; fails_at is
// EMULATOR_FAILS_AT; and EMULATOR_GPU may be one that CUDA refuses: "exclusive", as another program
// has it for itself, by its compute mode; "busy", whatever its mode; "full", without memory for a
// context; "foreign", not of the architectures that the kernels were compiled for; or "other", of
// another kind, or "new_driver".
Device& device();

size_t used_bytes(int device);  // by all processes that share its memory
bool has_context(int device);   // whether this process has used it

// Enqueues work on a stream, for stand-ins of libraries.
cudaError_t enqueue(cudaStream_t, std::function<void()> work);

// The device of a stream.
int device_of(cudaStream_t);

// cudaSuccess if the thread's current device can be used, which it is from then on.
cudaError_t use_device();

// Counts a kernel, which runs next on the device; throws if it is number fails_at.
void begin_kernel(const void* kernel, int device);

// cudaSuccess if CUDA would accept this launch.
cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t&);

}  // namespace emulator

const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int index);
cudaError_t cudaGetDevice(int* index);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int index);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int index);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value);

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*work)(void*), void* data);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
// By the host's clock, or that of device_clock.h.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... all) {
  const auto* const address = reinterpret_cast<const void*>(kernel);
  const cudaError_t status = emulator::check_launch(address, *config);
  if (status != cudaSuccess) return status;
  return emulator::enqueue(
      config->stream, [c = *config, kernel, address, device = emulator::device_of(config->stream),
                       arguments = std::tuple<P...>(static_cast<P>(all)...)] {
        emulator::begin_kernel(address, device);
        const auto launch = [&](const auto&... values) {
          emulator::launch(kernel, c.gridDim, c.blockDim, c.dynamicSmemBytes, values...);
        };
        std::apply(launch, arguments);
      });
}
