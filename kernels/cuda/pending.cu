#include "spool/kernels/adamw.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/reduce.h"

// Kernels that have no form for CUDA yet.

namespace spool {
void run(const AdamW&, CudaStream&) { fail(ErrorKind::device, "pending: ", AdamW::name); }
void run(const ClipFactor&, CudaStream&) { fail(ErrorKind::device, "pending: ", ClipFactor::name); }
void run(const AttentionForward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", AttentionForward::name);
}
void run(const AttentionBackward&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", AttentionBackward::name);
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
void run(const Matmul&, CudaStream&) { fail(ErrorKind::device, "pending: ", Matmul::name); }
void run(const SumAll&, CudaStream&) { fail(ErrorKind::device, "pending: ", SumAll::name); }
void run(const SquaredNorm&, CudaStream&) {
  fail(ErrorKind::device, "pending: ", SquaredNorm::name);
}
}  // namespace spool
