#include "spool/kernels/adamw.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/normal.h"
#include "spool/kernels/reduce.h"

// Kernels that have no form for CUDA yet.

namespace spool {
void run(const AdamW&, CudaStream&) { fail(ErrorKind::device, "pending: ", AdamW::name); }
void run(const ClipFactor&, CudaStream&) { fail(ErrorKind::device, "pending: ", ClipFactor::name); }
void run(const BiasBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", BiasBackward::name);
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
void run(const NormalFill&, CudaStream&) { fail(ErrorKind::device, "pending: ", NormalFill::name); }
void run(const SumAll&, CudaStream&) { fail(ErrorKind::device, "pending: ", SumAll::name); }
void run(const SquaredNorm&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", SquaredNorm::name);
}
}  // namespace spool
