// Parameters in flat parts: which elements each rank stores, and where.

#include "spool/autograd/sharding/flat_parts.h"

#include <algorithm>

#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/weights.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t many = (int64_t{4} << 20) * 3 + 4099;

TEST(FlatParts, HaveEachElementOnceInPiecesOfWholeGranules) {
  for (const int64_t elements : {FlatParts::min_elements, int64_t{100'001}, many}) {
    for (const int ranks : {1, 2, 3, 8, 64}) {
      const FlatParts parts(elements, ranks);
      int64_t next = 0;
      for (int64_t b = 0; b < parts.buckets(); ++b) {
        for (int r = 0; r < ranks; ++r) {
          const Range piece = parts.piece(b, r);
          EXPECT_EQ(piece.begin, next);
          if (piece.size() > 0) {
            EXPECT_EQ(piece.begin % weights_granule, 0);
            EXPECT_EQ(parts.place_of(piece.begin), b * parts.piece_elements());
            EXPECT_LT(parts.place_of(piece.end - 1), parts.stored());
          }
          next = piece.end;
        }
      }
      EXPECT_EQ(next, elements);
      // No more than a granule of each bucket beside an equal share.
      EXPECT_LE(parts.stored(), elements / ranks + (parts.buckets() + 1) * weights_granule);
    }
  }
}

// What a rank stores of a parameter that is cut over a mesh is that many elements of its part.
TEST(FlatParts, OfAPartAreElementsOfTheWhole) {
  const WholeValue value = plain_value({{96, 1024}, DType::f32});
  const MeshAxes mesh = parse_mesh("2x2");
  for (const Sharding& s : all_shardings(value, mesh)) {
    std::vector<int> owners(static_cast<size_t>(value.spec.shape.numel()), 0);
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const ParameterPart part(value, s, mesh, rank);
      const FlatParts flat(part.gathered().shape.numel(), 3);
      for (int replica = 0; replica < 3; ++replica) {
        const ParameterPart in_parts(value, s, mesh, rank, ParameterPart::Flat{flat, replica});
        EXPECT_TRUE(in_parts.is_cut());
        EXPECT_EQ(in_parts.own().shape, Shape({flat.stored()}));
        const auto has = in_parts.stretches({0, value.spec.shape.numel()});
        int64_t stored = 0;
        for (const Range& r : has.whole) {
          stored += r.size();
          for (int64_t i = r.begin; i < r.end; ++i)
            owners[static_cast<size_t>(i)] += part.is_first();
        }
        EXPECT_EQ(has.own.size(), stored);
        for (const Range& some : {Range{5, 3000}, Range{40'000, 90'001}}) {
          const auto found = in_parts.stretches(some);
          const auto before = in_parts.stretches({0, some.begin});
          EXPECT_TRUE(found.own.size() == 0 || found.own.begin == before.own.end);
        }
      }
    }
    EXPECT_EQ(std::ranges::count(owners, 1), value.spec.shape.numel());
  }
}

}  // namespace
}  // namespace spool::testing
