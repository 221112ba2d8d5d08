#pragma once

// RAII owners of CUDA's streams, events, graphs and memory, and the check of CUDA's calls.

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "spool/runtime/check.h"

namespace spool::cuda {

// Throws Error (device) with the call and CUDA's message.
template <class... Parts>
void check_call(cudaError_t status, const Parts&... call) {
  if (status == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();  // so that the next check does not report it again
  fail(ErrorKind::device, "CUDA: ", call..., ": ", cudaGetErrorString(status), " (",
       cudaGetErrorName(status), ")");
}

// Makes the device the thread's current one, to which all that is made from then on belongs.
inline int made_current(int index) {
  check_call(cudaSetDevice(index), "cudaSetDevice");
  return index;
}

template <class T, cudaError_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& from) noexcept : value_(std::exchange(from.value_, nullptr)) {}
  Handle& operator=(Handle&& from) noexcept {
    std::swap(value_, from.value_);
    return *this;
  }
  ~Handle() {
    if (value_) destroy(value_);
  }
  explicit operator bool() const { return value_ != nullptr; }
  T get() const { return value_; }
  T* out() { return &value_; }

 private:
  T value_ = nullptr;
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

inline StreamHandle make_stream() {
  StreamHandle stream;
  check_call(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  return stream;
}

inline EventHandle make_event() {
  EventHandle event;
  check_call(cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
  return event;
}

inline EventHandle make_timing_event() {
  EventHandle event;
  check_call(cudaEventCreateWithFlags(event.out(), cudaEventDefault), "cudaEventCreateWithFlags");
  return event;
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    check_call(cudaMalloc(&data_, bytes), "cudaMalloc of ", bytes, " bytes");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes) {
    check_call(cudaMallocHost(&data_, bytes), "cudaMallocHost of ", bytes, " bytes");
  }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace spool::cuda
