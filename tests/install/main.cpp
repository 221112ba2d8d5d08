// The smallest program outside the tree: the gradient of a product, y = x weight^T, and a check of
// an op.

#include <iostream>

#include "spool/spool.h"
#include "spool/testing.h"

int main() {
  using namespace spool;
  CpuStream stream(16 << 20, 1);
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6}, ones = {1, 1}, sums = {5, 7, 9};
  Parameter weight{.name = "weight", .data = make_tensor<float>({1, 3}, sums, stream)};
  Tape tape(stream);
  const Var y = linear(tape.input(make_tensor<float>({2, 3}, rows, stream)), weight);
  tape.backward({Root{y, make_tensor<float>({2, 1}, ones, stream)}});
  std::cout << "a gradient of " << weight.grad.spec() << " took " << stream.memory().peak
            << " bytes\n";
  const OpSample doubled{
      .name = "scale", .inputs = {{.shape = {3, 4}}}, .apply = [](const std::vector<Operand>& x) {
        return std::vector{scale(*x[0].var, 2)};
      }};
  expect_op(doubled);
  return read<float>(weight.grad) == sums ? 0 : 1;
}
