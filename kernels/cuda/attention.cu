#include "spool/kernels/cuda/attention.cuh"

#include <initializer_list>

#include "spool/kernels/cuda/attention_fused.cuh"
#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/cuda/tensor_attention.cuh"

namespace spool {
namespace {

const CudaArchitecture& architecture(const CudaStream& stream) {
  return std::get<CudaArchitecture>(stream.architecture());
}

struct Named {
  const char* name;
  const View& view;
};

// cuDNN and the kernels on tensor cores move 16 bytes at a time; the choice between kernels is
// one of shapes alone.
void check_aligned(const char* kernel, std::initializer_list<Named> all) {
  for (const auto& [name, view] : all) {
    check(cuda::is_aligned(view), kernel, " on cuda: ", name, ", ", view.spec(),
          ", does not begin at a multiple of 16 bytes; copy it to memory of its own");
  }
}

}  // namespace

void run(const AttentionForward& k, CudaStream& stream) {
  const AttentionMethod method = choose_attention(k, architecture(stream)).method;
  if (method != AttentionMethod::plain) check_aligned(k.name, {{"qkv", k.qkv}, {"y", k.y}});
  switch (method) {
    case AttentionMethod::cudnn:
      return cuda::fused_forward(k, stream);
    case AttentionMethod::tensor_cores:
      return cuda::tensor_attention_forward(k, stream);
    case AttentionMethod::plain:
      return cuda::attention_forward(k, stream);
  }
}

void run(const AttentionBackward& k, CudaStream& stream) {
  const AttentionMethod method = choose_attention(k, architecture(stream)).method;
  if (method != AttentionMethod::plain) {
    check_aligned(k.name, {{"dqkv", k.dqkv.view}, {"dy", k.dy}, {"qkv", k.qkv}, {"y", k.y}});
  }
  switch (method) {
    case AttentionMethod::cudnn: {
      const cuda::AttentionShape all = cuda::attention_shape(k.qkv, k.y, k.heads);
      return cuda::fused_backward(k, cuda::cut_backward(all, k.parts), stream);
    }
    case AttentionMethod::tensor_cores:
      return cuda::tensor_attention_backward(k, stream);
    case AttentionMethod::plain:
      return cuda::attention_backward(k, stream);
  }
}

}  // namespace spool
