#include "spool/kernels/cuda/attention.h"

namespace spool {

void run(const AttentionForward& k, CudaStream& stream) { cuda::attention_forward(k, stream); }
void run(const AttentionBackward& k, CudaStream& stream) { cuda::attention_backward(k, stream); }

}  // namespace spool
