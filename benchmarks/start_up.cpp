// Runs one linear on the cpu, to measure a program from start to end: start_up [N C]
//
// Creates a stream of 64 MiB, computes x (N, C) times a weight (C, C), reads the result, and prints
// the maximum memory of the process (VmHWM), in KiB.  start_up.py runs it many times.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"

namespace {

// "VmHWM:     9340 kB"
long max_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtol(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace spool;
  const int64_t N = argc > 2 ? std::atoi(argv[1]) : 8, C = argc > 2 ? std::atoi(argv[2]) : 16;
  CpuStream stream(size_t{64} << 20);
  const auto ones = [&](int64_t rows) {
    const std::vector<float> values(static_cast<size_t>(rows * C), 1.0f);
    return make_tensor<float>(Shape{rows, C}, values, stream);
  };
  Tape tape(stream, {.recording = false});
  const Var y = linear(tape.input(ones(N)), tape.input(ones(C)));
  const bool is_right = read<float>(y.tensor()).front() == static_cast<float>(C);
  std::printf("%ld\n", max_resident());
  return is_right ? 0 : 1;
}
