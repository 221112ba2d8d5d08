#include "spool/kernels/cuda/attention_fused.cuh"

// FusedAttention by cuDNN's plans; the emulator has its own.  This file has no kernels: the C++
// compiler compiles it.

#if SPOOL_CUDNN

#include <cuda_runtime.h>

#include <map>
#include <mutex>

#include "spool/kernels/cuda/attention_plans.cuh"
#include "spool/kernels/cuda/library.cuh"
#include "spool/runtime/cuda/cudnn.h"

namespace spool::cuda {
namespace {

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

// Loads cuDNN, once.
void load_cudnn() {
  const Cudnn library = find_cudnn();
  if (!library) fail(ErrorKind::device, library.why_not);
  static const bool loaded = [&] {
    set_libraries(library.library,
                  {.get_device = address_of<cudaError_t(int*)>(cudaGetDevice),
                   .get_device_properties =
                       address_of<cudaError_t(cudaDeviceProp*, int)>(cudaGetDeviceProperties),
                   .get_error_string = address_of<const char*(cudaError_t)>(cudaGetErrorString)});
    return true;
  }();
  (void)loaded;
}

// The plans of the process.  They are built with a handle that no stream owns, as a plan may refer
// to its handle.  Nothing here is ever destroyed: at the end of the process, CUDA may be gone.
class Plans {
 public:
  AttentionPlan& find(AttentionPass pass, const FusedShape& s, const CudaStream& stream) {
    const int device = stream.device().index;
    const Key key{device, pass, s};
    const std::lock_guard lock(mutex_);
    auto place = plans_.find(key);
    if (place == plans_.end()) {
      check_not_capturing(stream, "a plan of cuDNN");
      const CudnnHandle& handle = builders_.try_emplace(device, nullptr).first->second;
      place = plans_.try_emplace(key, pass, s, handle, bytes_of(pass, s, stream)).first;
    }
    return place->second;
  }

 private:
  struct Key {
    int device;
    AttentionPass pass;
    FusedShape shape;
    auto operator<=>(const Key&) const = default;
  };

  static size_t bytes_of(AttentionPass pass, const FusedShape& s, const CudaStream& stream) {
    if (pass == AttentionPass::forward) return fused_forward_bytes(s.part);
    const auto& architecture = std::get<CudaArchitecture>(stream.architecture());
    return fused_backward_bytes(s.part, {.order = s.order, .major = architecture.major});
  }

  std::mutex mutex_;
  std::map<int, CudnnHandle> builders_;  // by device
  std::map<Key, AttentionPlan> plans_;
};

Plans& plans() {
  static Plans& all = *new Plans;
  return all;
}

}  // namespace

struct FusedAttention::State {
  CudaStream& stream;
  CudnnHandle handle;
};

FusedAttention::FusedAttention(CudaStream& stream) {
  check_not_capturing(stream, "cuDNN");
  load_cudnn();
  state_.reset(new State{stream, CudnnHandle(stream.native())});
}
FusedAttention::~FusedAttention() = default;

void FusedAttention::forward(const FusedForward& f) {
  plans().find(AttentionPass::forward, f.shape, state_->stream).run(f, state_->handle);
}

void FusedAttention::backward(const FusedBackward& f) {
  plans().find(AttentionPass::backward, f.shape, state_->stream).run(f, state_->handle);
}

}  // namespace spool::cuda

#elif defined(__CUDACC__)

namespace spool::cuda {

struct FusedAttention::State {};

FusedAttention::FusedAttention(CudaStream&) {
  fail(ErrorKind::device, "attention by cuDNN: this build is without cuDNN");
}
FusedAttention::~FusedAttention() = default;
void FusedAttention::forward(const FusedForward&) {}
void FusedAttention::backward(const FusedBackward&) {}

}  // namespace spool::cuda

#endif
