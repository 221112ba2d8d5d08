// What a rank has of a parameter, against the positions of its elements counted one by one.

#include "spool/autograd/sharding/parameter_part.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "spool/kernels/normal.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Positions = std::vector<int64_t>;

// A parameter, packed q, k and v of two groups of heads, and rows that join.
std::vector<WholeValue> sample_parameters() {
  WholeValue packed = plain_value({{24, 6}, DType::f32});
  packed.dimensions[0] = {.parts = {12, 4, 8}, .units = 4};
  return {plain_value({{8, 12}, DType::f32}), plain_value({{16}, DType::f32}), packed,
          plain_value({{3, 4, 5}, DType::f32})};
}

Positions all_of(const ParameterPart::Stretches& has) {
  Positions all;
  for (const Range& r : has.whole) {
    for (int64_t i = r.begin; i < r.end; ++i) all.push_back(i);
  }
  return all;
}

template <class Each>
void for_each_part(const Each& each) {
  for (const char* text : {"2", "4", "2x2", "2x1x2"}) {
    const MeshAxes mesh = parse_mesh(text);
    for (const WholeValue& value : sample_parameters()) {
      for (const Sharding& s : all_shardings(value, mesh)) each(value, s, mesh);
    }
  }
}

TEST(ParameterPart, HasTheElementsOfItsSharding) {
  Random random(3);
  for_each_part([&](const WholeValue& value, const Sharding& s, const MeshAxes& mesh) {
    SCOPED_TRACE(sentence(value.spec, " ", in_words(s, value.spec.shape.rank(), mesh)));
    const auto ranks = all_ranks(mesh);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const ParameterPart part(value, s, mesh, static_cast<int>(r));
      const Positions wanted = positions(value, s, mesh, ranks[r]);
      const int64_t numel = value.spec.shape.numel();
      ASSERT_EQ(all_of(part.stretches({0, numel})), wanted);
      ASSERT_EQ(part.own().shape.numel(), std::ssize(wanted));
      for (int i = 0; i < 8; ++i) {
        const auto begin = static_cast<int64_t>(random.next() % static_cast<uint64_t>(numel));
        const auto size =
            static_cast<int64_t>(random.next() % static_cast<uint64_t>(numel - begin));
        const auto first = std::ranges::lower_bound(wanted, begin);
        const auto last = std::ranges::lower_bound(wanted, begin + size);
        const ParameterPart::Stretches some = part.stretches({begin, begin + size});
        ASSERT_EQ(all_of(some), Positions(first, last));
        if (first == last) continue;
        EXPECT_EQ(some.own.begin, first - wanted.begin());
        EXPECT_EQ(some.own.end, last - wanted.begin());
      }
    }
  });
}

TEST(ParameterPart, NumbersPartsThatDifferAndNamesOneRankOfEach) {
  for_each_part([&](const WholeValue& value, const Sharding& s, const MeshAxes& mesh) {
    std::map<int, Positions> parts;
    std::map<int, int> firsts;
    for (int r = 0; r < mesh.ranks(); ++r) {
      const ParameterPart part(value, s, mesh, r);
      const Positions has = all_of(part.stretches({0, value.spec.shape.numel()}));
      const auto [known, is_new] = parts.try_emplace(part.number(), has);
      EXPECT_EQ(known->second, has);
      firsts[part.number()] += part.is_first() ? 1 : 0;
    }
    for (const auto& [number, count] : firsts) EXPECT_EQ(count, 1) << number;
  });
}

TEST(ParameterPart, CopiesWhatItHasOfEachPieceOfTheWhole) {
  CpuStream stream(size_t{1} << 20, 1);
  for_each_part([&](const WholeValue& value, const Sharding& s, const MeshAxes& mesh) {
    const int64_t numel = value.spec.shape.numel(), piece = 28;
    const Tensor whole = normal(value.spec.shape, DType::f32, stream, 5);
    const Numbers numbers = values(whole);
    for (int r = 0; r < mesh.ranks(); ++r) {
      const ParameterPart part(value, s, mesh, r);
      const Tensor own(part.own(), stream);
      for (int64_t begin = 0; begin < numel; begin += piece) {
        const Range some{begin, std::min(begin + piece, numel)};
        part.copy_from(whole.view().slice_elements(some), some, own, stream);
      }
      Numbers wanted;
      for (const int64_t i : all_of(part.stretches({0, numel}))) {
        wanted.push_back(numbers[static_cast<size_t>(i)]);
      }
      EXPECT_EQ(values(own), wanted);
    }
  });
}

TEST(ParameterPart, DrawsAPieceAsAPartOfTheWhole) {
  CpuStream stream(size_t{1} << 20, 1);
  const Tensor whole({Shape{100}, DType::f32}, stream), piece({Shape{31}, DType::f32}, stream);
  launch(NormalFill{.out = whole, .seed = 7, .tensor = 3}, stream);
  launch(NormalFill{.out = piece, .seed = 7, .tensor = 3, .first = 40}, stream);
  EXPECT_EQ(values(piece), values(whole.slice({40, 71})));
  expect_error(ErrorKind::invalid, {"first is 2", "multiple of 4"},
               [&] { launch(NormalFill{.out = piece, .first = 2}, stream); });
}

}  // namespace
}  // namespace spool::testing
