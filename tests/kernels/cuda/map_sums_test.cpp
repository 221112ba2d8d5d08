// runs: threads
// Gradients of the broadcast inputs of map() on cuda: terms that move by eights and those that move
// one by one have the same sums, bit for bit.

#include "spool/kernels/copy.h"
#include "spool/kernels/functors.h"
#include "spool/kernels/map.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

// The same numbers for every `skip`, `skip` elements into their memory.
Tensor numbers_at(int64_t skip, const Shape& shape, DType type, Stream& stream, uint64_t seed) {
  const int64_t count = shape.numel();
  const Tensor all({Shape{skip + count, 1}, type}, stream);
  const Tensor to = all.slice({skip, skip + count}).reshape(shape);
  launch(Permute{.out = to, .in = normal(shape, type, stream, seed), .order = {0, 1}}, stream);
  return to;
}

struct SumCase {
  int64_t N, C;
  Shape shape;  // of the broadcast input
  Broadcast broadcast;
};

// The gradient by b of a / b, added to numbers that are there.
Numbers gradient_of(const SumCase& c, DType type, int64_t skip, Stream& stream) {
  const Shape whole{c.N, c.C};
  const Tensor dy = numbers_at(skip, whole, type, stream, 1),
               y = numbers_at(skip, whole, type, stream, 2);
  const Tensor b = normal(c.shape, type, stream, 3), db = normal(c.shape, type, stream, 4);
  const MapBackward<functors::Div, 2> k{.dx = {Grad(), Grad(db, /*accumulate=*/true)},
                                        .dy = dy,
                                        .slots = {View(), b, y},
                                        .broadcasts = {Broadcast::none, c.broadcast}};
  launch(k, stream);
  return values(db);
}

class CudaMapSums : public OnCuda {};

TEST_F(CudaMapSums, HaveTheSameBitsByEights) {
  const auto stream = cuda_stream();
  for (const DType type : cuda_types) {
    for (const auto& [N, C] : {std::pair{1, 8}, {9, 264}, {3, 2056}, {70, 1032}, {33, 4}}) {
      for (const SumCase& c : {SumCase{N, C, {C}, Broadcast::row},
                               {N, C, {N, 1}, Broadcast::column},
                               {N, C, {1}, Broadcast::number}}) {
        const Numbers one_by_one = gradient_of(c, type, /*skip=*/1, *stream);
        EXPECT_EQ(gradient_of(c, type, /*skip=*/0, *stream), one_by_one)
            << name(type) << " " << N << " x " << C << " to " << c.shape.numel();
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
