#include "spool/kernels/attention.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"

// Kernels that have no form for CUDA yet.

namespace spool {
void run(const AttentionForward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", AttentionForward::name);
}
void run(const AttentionBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", AttentionBackward::name);
}
void run(const BiasBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", BiasBackward::name);
}
void run(const CachedAttention&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", CachedAttention::name);
}
void run(const CrossEntropy&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", CrossEntropy::name);
}
void run(const CountTargets&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", CountTargets::name);
}
void run(const Dropout&, CudaStream&) { fail(ErrorKind::device, "pending: ", Dropout::name); }
void run(const EmbeddingForward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", EmbeddingForward::name);
}
void run(const EmbeddingBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", EmbeddingBackward::name);
}
void run(const GeluForward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", GeluForward::name);
}
void run(const GeluBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", GeluBackward::name);
}
void run(const LayerNormForward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", LayerNormForward::name);
}
void run(const LayerNormBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", LayerNormBackward::name);
}
void run(const Matmul&, CudaStream&) { fail(ErrorKind::device, "pending: ", Matmul::name); }
void run(const NormalFill&, CudaStream&) { fail(ErrorKind::device, "pending: ", NormalFill::name); }
}  // namespace spool
