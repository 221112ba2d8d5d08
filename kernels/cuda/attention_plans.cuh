#pragma once

// cuDNN's plans for attention: the kernels that cuDNN chooses for a shape, type and device.  Their
// source includes the headers of cuDNN's frontend, which take long to compile; this header does
// not.
//
// A plan belongs to a device, not to a stream: it is built with one handle of the device and may
// run with others, at any time after.  Whether there is one can also be asked for a device that is
// only described.

#include <memory>
#include <string>

#include "spool/kernels/cuda/attention_fused.cuh"

namespace spool::cuda {

// The functions of CUDA's runtime that the frontend calls: cudaGetDevice and others.
struct CudaRuntime {
  void *get_device = nullptr, *get_device_properties = nullptr, *get_error_string = nullptr;
};

// Sets cuDNN, a handle of dlopen(), and the runtime, before anything else here is used.
void set_libraries(void* cudnn, const CudaRuntime&);

// A runtime that knows only the device that why_no_plan() is asked for.
CudaRuntime runtime_without_device();

// A cudnnHandle_t, of the current device; it enqueues on the stream, a cudaStream_t.
class CudnnHandle {
 public:
  explicit CudnnHandle(void* stream);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

enum class AttentionPass : uint8_t { forward, backward };

class AttentionPlan {
 public:
  // Throws if cuDNN has no plan within `bytes` of workspace.
  AttentionPlan(AttentionPass, const FusedShape&, const CudnnHandle&, size_t bytes);
  ~AttentionPlan();

  // Run on the handle's stream.  Threads may run one plan, each with a handle of its own.
  void run(const FusedForward&, const CudnnHandle&);
  void run(const FusedBackward&, const CudnnHandle&);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A device that need not be there.
struct DescribedDevice {
  std::string properties;  // JSON, as cuDNN serializes a device's properties
  int capability = 0;      // 10 major + minor
};

// Why cuDNN has no plan within `bytes` of workspace; empty if it has one.  For one thread, with
// runtime_without_device().
std::string why_no_plan(AttentionPass, const FusedShape&, const DescribedDevice&, size_t bytes);

}  // namespace spool::cuda
