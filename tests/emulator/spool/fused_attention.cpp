#include "fused_attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "../emulator.h"
#include "spool/kernels/cuda/attention_fused.cuh"
#include "spool/kernels/cuda/library.cuh"

namespace emulator {
FusedAttention& fused_attention() {
  static FusedAttention state;
  return state;
}
}  // namespace emulator

namespace spool::cuda {
namespace {

// The tokens of a head: element d of token t is at t * step + d.
struct Rows {
  const void* data;
  int64_t first, step;

  float get(int64_t t, int64_t d) const {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[first + t * step + d]);
  }
  void put(int64_t t, int64_t d, float x) const {
    auto* to = static_cast<__nv_bfloat16*>(const_cast<void*>(data));
    to[first + t * step + d] = __float2bfloat16_rn(x);
  }
};

Rows packed(const FusedShape& s, const void* data, int64_t b, int64_t head) {
  return {data, b * s.packed_text() + head * s.part.D, s.packed_token()};
}
Rows unpacked(const FusedShape& s, const void* data, int64_t b, int64_t head) {
  return {data, b * s.y_text() + head * s.part.D, s.y_token()};
}

float dot(const Rows& a, int64_t i, const Rows& b, int64_t j, int64_t D) {
  float sum = 0;
  for (int64_t d = 0; d < D; ++d) sum += a.get(i, d) * b.get(j, d);
  return sum;
}

size_t index(int64_t i) { return static_cast<size_t>(i); }

// One query head of one text.
struct Head {
  FusedShape shape;
  int64_t b, h;
  Rows q, k, v;
  const float* lse;

  template <class Call>
  Head(const Call& call, int64_t text, int64_t head)
      : shape(call.shape),
        b(text),
        h(head),
        q(packed(shape, call.q, b, h)),
        k(packed(shape, call.k, b, key_head())),
        v(packed(shape, call.v, b, key_head())),
        lse(static_cast<const float*>(call.lse) + b * shape.lse_text() + h * shape.whole.T) {}

  int64_t T() const { return shape.part.T; }
  int64_t D() const { return shape.part.D; }
  int64_t key_head() const { return h / (shape.part.H / shape.part.Hkv); }
  float score(int64_t i, int64_t j) const { return shape.scale * dot(q, i, k, j, D()); }
  // The number of keys that query i sees.
  int64_t seen(int64_t i) const { return shape.mask == Mask::causal ? i + 1 : T(); }

  void forward(const FusedForward& call) const {
    const Rows y = unpacked(shape, call.y, b, h);
    for (int64_t i = 0; i < T(); ++i) {
      std::vector<float> p;
      float largest = -std::numeric_limits<float>::infinity(), total = 0;
      for (int64_t j = 0; j < seen(i); ++j) {
        p.push_back(score(i, j));
        largest = std::max(largest, p.back());
      }
      for (float& x : p) total += x = std::exp(x - largest);
      const_cast<float*>(lse)[i] = largest + std::log(total);
      for (int64_t d = 0; d < D(); ++d) {
        float sum = 0;
        for (int64_t j = 0; j < seen(i); ++j) sum += p[index(j)] * v.get(j, d);
        y.put(i, d, sum / total);
      }
    }
  }

  // Adds to dk and dv, (T, D).
  void backward(const FusedBackward& call, std::vector<float>& dk, std::vector<float>& dv) const {
    const Rows y = unpacked(shape, call.y, b, h), dy = unpacked(shape, call.dy, b, h);
    const Rows dq = packed(shape, call.dq, b, h);
    for (int64_t i = 0; i < T(); ++i) {
      std::vector<float> sums(index(D()));
      const float delta = dot(dy, i, y, i, D());
      for (int64_t j = 0; j < seen(i); ++j) {
        const float p = std::exp(score(i, j) - lse[i]);
        const float ds = shape.scale * p * (dot(dy, i, v, j, D()) - delta);
        for (int64_t d = 0; d < D(); ++d) {
          sums[index(d)] += ds * k.get(j, d);
          dk[index(j * D() + d)] += ds * q.get(i, d);
          dv[index(j * D() + d)] += p * dy.get(i, d);
        }
      }
      for (int64_t d = 0; d < D(); ++d) dq.put(i, d, sums[index(d)]);
    }
  }
};

void forward(const FusedForward& call) {
  const AttentionShape& s = call.shape.part;
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t h = 0; h < s.H; ++h) Head(call, b, h).forward(call);
  }
}

// A key head and the query heads that share it.
void backward(const FusedBackward& call, int64_t b, int64_t key_head) {
  const AttentionShape& s = call.shape.part;
  const int64_t group = s.H / s.Hkv;
  std::vector<float> dk(index(s.T * s.D)), dv(index(s.T * s.D));
  for (int64_t g = 0; g < group; ++g) {
    Head(call, b, key_head * group + g).backward(call, dk, dv);
  }
  const Rows dk_rows = packed(call.shape, call.dk, b, key_head);
  const Rows dv_rows = packed(call.shape, call.dv, b, key_head);
  for (int64_t j = 0; j < s.T; ++j) {
    for (int64_t d = 0; d < s.D; ++d) {
      dk_rows.put(j, d, dk[index(j * s.D + d)]);
      dv_rows.put(j, d, dv[index(j * s.D + d)]);
    }
  }
}

// Uses all of the workspace it is given.
template <class Call>
void take_workspace(const Call& call, size_t needed) {
  check(call.workspace.nbytes() >= needed, "fused attention got ", call.workspace.nbytes(),
        " bytes of workspace, and needs ", needed);
  std::memset(call.workspace.data(), 0xff, needed);
}

}  // namespace

namespace {

// The stand-in is on the current device, as cuDNN is.
cudaStream_t of_current_device(const CudaStream& stream) {
  int current = 0;
  cudaGetDevice(&current);
  check(current == stream.device().index, "the emulated cuDNN: a stream of another device");
  return static_cast<cudaStream_t>(stream.native());
}

}  // namespace

struct FusedAttention::State {
  cudaStream_t stream;
  int major;  // compute capability
};

FusedAttention::FusedAttention(CudaStream& stream)
    : state_(new State{.stream = of_current_device(stream),
                       .major = std::get<CudaArchitecture>(stream.architecture()).major}) {
  check_not_capturing(stream, "fused attention");
}
FusedAttention::~FusedAttention() = default;

void FusedAttention::forward(const FusedForward& call) {
  ++emulator::fused_attention().forwards;
  emulator::enqueue(state_->stream, [call] {
    take_workspace(call, fused_forward_bytes(call.shape.part));
    cuda::forward(call);
  });
}

void FusedAttention::backward(const FusedBackward& call) {
  ++emulator::fused_attention().backwards;
  const FusedBackwardKind kind{.order = call.shape.order, .major = state_->major};
  emulator::enqueue(state_->stream, [call, kind] {
    const AttentionShape& s = call.shape.part;
    take_workspace(call, fused_backward_bytes(s, kind));
    for (int64_t b = 0; b < s.B; ++b) {
      for (int64_t h = 0; h < s.Hkv; ++h) cuda::backward(call, b, h);
    }
  });
}

}  // namespace spool::cuda
