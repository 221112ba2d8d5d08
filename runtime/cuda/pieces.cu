#include "spool/runtime/cuda/pieces.cuh"

#include <algorithm>
#include <cstring>
#include <new>

#include "spool/runtime/integer.h"
#include "spool/runtime/trace.h"

namespace spool::cuda {
namespace {

constexpr int copies_at_once = 128, copy_block = 256;
constexpr size_t word_bytes = 16;
constexpr size_t bytes_of_block = 8 * copy_block * word_bytes;  // about
constexpr unsigned most_blocks = 64;                            // of a copy

struct CopyList {
  PieceCopy all[copies_at_once];
};
static_assert(sizeof(CopyList) < 4096, "more than the parameters of a kernel");

__global__ void __launch_bounds__(copy_block) copy_pieces(const __grid_constant__ CopyList list) {
  const PieceCopy& copy = list.all[blockIdx.y];
  const size_t first = size_t{blockIdx.x} * copy_block + threadIdx.x;
  const size_t step = size_t{gridDim.x} * copy_block;
  const bool is_aligned =
      (reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from)) %
          word_bytes ==
      0;
  const size_t words = is_aligned ? copy.bytes / word_bytes : 0;
  const auto* const from = reinterpret_cast<const uint4*>(copy.from);
  auto* const to = reinterpret_cast<uint4*>(copy.to);
  for (size_t i = first; i < words; i += step) to[i] = from[i];
  for (size_t i = words * word_bytes + first; i < copy.bytes; i += step) {
    copy.to[i] = copy.from[i];
  }
}

template <class T>
__device__ void store_for_host(T* to, T value) {
#if defined(__CUDA_ARCH__)
  __threadfence_system();
  *static_cast<volatile T*>(to) = value;
#else
  __atomic_store_n(to, value, __ATOMIC_RELEASE);  // the emulator's device is a thread of the host
#endif
}

__device__ unsigned long long nanoseconds_now() {
#if defined(__CUDA_ARCH__)
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return static_cast<unsigned long long>(host_clock() * 1e9);
#endif
}

__global__ void note_progress(ExchangeProgress::Reading* progress, const char* begins,
                              unsigned long long sent) {
  if (begins) {
    progress->began_at = nanoseconds_now();
    store_for_host(&progress->name, begins);
    store_for_host(&progress->begun, progress->begun + 1);
  } else {
    const unsigned long long took = nanoseconds_now() - progress->began_at;
    store_for_host(&progress->nanoseconds, progress->nanoseconds + took);
    store_for_host(&progress->sent, progress->sent + sent);
    store_for_host(&progress->ended, progress->ended + 1);
  }
}

template <class... P, class... A>
void launch_on(cudaStream_t stream, void (*kernel)(P...), dim3 grid, dim3 block,
               const A&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  (void)cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

}  // namespace

void enqueue_copies(const char* name, const std::vector<PieceCopy>& copies, CudaStream& stream) {
  for (size_t first = 0; first < copies.size(); first += copies_at_once) {
    const size_t count = std::min<size_t>(copies_at_once, copies.size() - first);
    CopyList list;
    size_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      list.all[i] = copies[first + i];
      most = std::max(most, list.all[i].bytes);
    }
    const dim3 grid(
        std::clamp<unsigned>(static_cast<unsigned>(ceil_div(most, bytes_of_block)), 1, most_blocks),
        static_cast<unsigned>(count));
    stream.enqueue(name, [&] {
      launch_on(static_cast<cudaStream_t>(stream.native()), copy_pieces, grid, dim3(copy_block),
                list);
    });
  }
}

ExchangeProgress::ExchangeProgress() : memory_(sizeof(Reading)) { new (memory_.data()) Reading(); }

void ExchangeProgress::note(const char* name, unsigned long long sent, cudaStream_t stream) const {
  launch_on(stream, note_progress, dim3(1), dim3(1), reinterpret_cast<Reading*>(memory_.data()),
            name, sent);
  check_call(cudaGetLastError(), "a launch of note_progress");
}

ExchangeProgress::Reading ExchangeProgress::read() const {
  const auto* const now = reinterpret_cast<const Reading*>(memory_.data());
  Reading reading;
  reading.ended = __atomic_load_n(&now->ended, __ATOMIC_ACQUIRE);
  reading.begun = __atomic_load_n(&now->begun, __ATOMIC_ACQUIRE);
  reading.nanoseconds = __atomic_load_n(&now->nanoseconds, __ATOMIC_ACQUIRE);
  reading.sent = __atomic_load_n(&now->sent, __ATOMIC_ACQUIRE);
  reading.name = __atomic_load_n(&now->name, __ATOMIC_ACQUIRE);
  return reading;
}

}  // namespace spool::cuda
