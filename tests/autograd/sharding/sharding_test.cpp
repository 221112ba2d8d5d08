// What a rank has of a value.

#include "spool/autograd/sharding/sharding.h"

#include "tests/autograd/sharding/parts_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

Sharding cuts(std::initializer_list<int> dimensions) {  // -1: whole
  Sharding s;
  size_t axis = 0;
  for (const int d : dimensions) s[axis++] = d < 0 ? State::whole() : State::cut(d);
  return s;
}

std::string shape_of(const WholeValue& value, const Sharding& s, const char* mesh,
                     int rows = Shape::max_rank) {
  const auto shape = local_shape(value, s, parse_mesh(mesh), rows);
  return shape ? sentence(*shape) : "none";
}

TEST(ShardingOfAValue, DividesDimensions) {
  const WholeValue value = plain_value({{4, 6, 8}});
  EXPECT_EQ(shape_of(value, {}, "2x4"), "(4, 6, 8)");
  EXPECT_EQ(shape_of(value, cuts({1, 2}), "2x4"), "(4, 3, 2)");
  EXPECT_EQ(shape_of(value, cuts({2, 2}), "2x4"), "(4, 6, 1)");
  EXPECT_EQ(shape_of(value, cuts({1, -1}), "4x2"), "none");
  EXPECT_EQ(shape_of(value, cuts({2, 2}), "4x4"), "none");
  EXPECT_EQ(shape_of(plain_value({Shape{}}), {}, "2"), "()");
}

TEST(ShardingOfAValue, IsACopyWhereItIsSharedOrPartial) {
  Sharding s;
  s[0] = State::shared(), s[1] = State::partial();
  EXPECT_EQ(shape_of(plain_value({{3, 5}}), s, "2x4"), "(3, 5)");
  EXPECT_EQ(in_words(s, 2, parse_mesh("2x4")), "RR+H0+P1");
}

TEST(ShardingOfAValue, JoinsLeadingDimensionsThatDivideTogether) {
  const Sharding rows = cuts({0});
  EXPECT_EQ(shape_of(plain_value({{4, 3, 5}}), rows, "2"), "(2, 3, 5)");
  EXPECT_EQ(shape_of(plain_value({{2, 6, 5}}), rows, "4"), "(3, 5)");
  EXPECT_EQ(shape_of(plain_value({{2, 3, 2, 5}}), rows, "4"), "(3, 5)");
  EXPECT_EQ(shape_of(plain_value({{1, 6, 2, 5}}), rows, "2"), "(3, 2, 5)");
  EXPECT_EQ(shape_of(plain_value({{3, 5, 4}}), rows, "4"), "(15)");
  EXPECT_EQ(shape_of(plain_value({{3, 5, 4}}), rows, "4", 2), "none");
  EXPECT_EQ(shape_of(plain_value({{2, 6, 5}}), rows, "4", 1), "none");
  // A dimension that is cut by itself is not joined.
  EXPECT_EQ(shape_of(plain_value({{2, 6, 5}}), cuts({0, 1}), "4x2"), "none");
  EXPECT_EQ(shape_of(plain_value({{2, 6, 8}}), cuts({0, 2}), "4x2"), "(3, 4)");
}

TEST(ShardingOfAValue, CutsEachPartOfADimensionInUnits) {
  const WholeValue packed{
      .spec = {{2, 20}},
      .dimensions = {{.parts = {2}, .units = 2}, {.parts = {12, 4, 4}, .units = 4}}};
  EXPECT_EQ(shape_of(packed, cuts({1}), "2"), "(2, 10)");
  EXPECT_EQ(shape_of(packed, cuts({1}), "5"), "none");
  EXPECT_EQ(positions(packed, cuts({1}), parse_mesh("4"), {1}),
            (std::vector<int64_t>{3, 4, 5, 13, 17, 23, 24, 25, 33, 37}));
  // Rows of several parts, or of units, are not joined with other dimensions.
  const WholeValue rows{.spec = {{6, 4}},
                        .dimensions = {{.parts = {3, 3}, .units = 3}, {.parts = {4}, .units = 4}}};
  EXPECT_EQ(shape_of(rows, cuts({0}), "3"), "(2, 4)");
  EXPECT_EQ(shape_of(rows, cuts({0}), "2"), "none");
  const WholeValue heads{.spec = {{6, 4}},
                         .dimensions = {{.parts = {6}, .units = 3}, {.parts = {4}, .units = 4}}};
  EXPECT_EQ(shape_of(heads, cuts({0}), "2"), "none");
}

TEST(ShardingOfAValue, IsInWords) {
  const MeshAxes mesh = parse_mesh("2x4");
  EXPECT_EQ(in_words(cuts({-1, 2}), 4, mesh), "RRS1R");
  EXPECT_EQ(in_words(cuts({1, 1}), 2, mesh), "RS01");
  expect_error(ErrorKind::invalid, {"f32 (3, 5) does not divide into RS01 on 2x4"}, [&] {
    local_spec(plain_value({{3, 5}}), cuts({1, 1}), mesh);
  });
  EXPECT_EQ(local_spec(plain_value({{3, 8}, DType::bf16}), cuts({1, 1}), mesh),
            (Spec{{3, 1}, DType::bf16}));
}

}  // namespace
}  // namespace spool::testing
