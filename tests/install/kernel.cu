// A CUDA source of research code: nvcc compiles Spool's headers beside a kernel, and an op of
// map().

#include <iostream>

#include "doubled.h"
#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"

#ifndef SPOOL_CUDA
#define SPOOL_CUDA 0
#endif

__global__ void double_each(float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] *= 2;
}

int main() {
  using namespace spool;
  CpuStream stream(16 << 20, 1);
  const std::vector<float> row = {1, 2, 3};
  const Tensor x = make_tensor<float>({1, 3}, row, stream);
  if (read<float>(x) != row) double_each<<<1, 3>>>(nullptr, 0);
  Tape tape(stream);
  const Var four_times = doubled_elsewhere(map(Doubled(), tape.input(x)));
  if (read<float>(four_times.tensor()) != std::vector<float>{4, 8, 12}) return 1;
  if (runs_on_cuda_elsewhere() != bool(SPOOL_CUDA)) return 2;
  std::cout << x.spec() << " of a CUDA source\n";
}
