// map() of a functor on cuda: in a CUDA source it runs on both devices, and so it does in a .cpp if
// the program has such a source.

#include "spool/autograd/ops/map.h"

#include "tests/autograd/cuda/maps.h"
#include "tests/autograd/samples/functors.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

struct OnlyHere {
  static constexpr const char* name = "only_here";
  template <class T>
  SPOOL_HOST_DEVICE T value(T x) const {
    return 2 * x;
  }
  SPOOL_HOST_DEVICE int derivative(Unread) const { return 2; }
};

using Maps = OnCuda;

TEST_F(Maps, OfACudaSourceRunOnBothDevices) {
  const auto work = [](Stream& stream) {
    Tape tape(stream);
    std::vector<Var> x;
    for (uint64_t i = 0; i < 3; ++i) {
      x.push_back(tape.input(normal({5, 300}, DType::f32, stream, i), /*needs_grad=*/true));
    }
    const Var here = map(MulAdd(), x[0], x[1], x[2]), there = mul_add(here, x[1], x[2]);
    tape.backward({Root{there, normal(there.shape(), DType::f32, stream, 9)}});
    Numbers all = values(there.tensor());
    for (const Var& v : x) {
      for (const double g : values(tape.grad(v))) all.push_back(g);
    }
    return all;
  };
  expect_as_on_cpu(work, 1e-6);
}

TEST_F(Maps, OfACppAloneAreRefusedOnCuda) {
  const auto stream = cuda_stream();
  Tape tape(*stream);
  const Var x = tape.input(normal({4}, DType::f32, *stream, 1));
  expect_error(ErrorKind::device, {"only_here_forward", "no CUDA implementation"},
               [&] { map(OnlyHere(), x); });
}

}  // namespace
}  // namespace spool::testing
