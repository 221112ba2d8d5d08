// The text of a mesh.

#include "spool/autograd/sharding/mesh_axes.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(MeshOfAxes, IsReadFromNumbers) {
  const MeshAxes mesh = parse_mesh("2x4");
  ASSERT_EQ(mesh.size(), 2u);
  EXPECT_EQ(mesh.axes[0].name, "0");
  EXPECT_EQ(mesh.axes[1].name, "1");
  EXPECT_EQ(mesh[0], 2);
  EXPECT_EQ(mesh[1], 4);
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(mesh.text(), "2x4");
  EXPECT_EQ(parse_mesh("8").text(), "8");
  EXPECT_EQ(parse_mesh("2x1x2x1").ranks(), 4);
}

TEST(MeshOfAxes, IsReadFromNamesAndNumbers) {
  const MeshAxes mesh = parse_mesh("data=2,tensor=4");
  ASSERT_EQ(mesh.size(), 2u);
  EXPECT_EQ(mesh.axes[0].name, "data");
  EXPECT_EQ(mesh.axes[1].name, "tensor");
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(mesh.text(), "data=2,tensor=4");
  EXPECT_EQ(parse_mesh("tensor=1").ranks(), 1);
}

TEST(MeshOfAxes, IsRefusedIfItIsNone) {
  const auto expect_refused = [](std::string_view text, std::string_view words) {
    expect_error(ErrorKind::invalid, {text, words}, [&] { parse_mesh(text); });
  };
  expect_refused("", "has no axes");
  expect_refused("2x2x2x2x2", "more than 4 axes");
  expect_refused("2x0", "axis 1 has 0 ranks, and has at least 1");
  expect_refused("-2", "axis 0 has -2 ranks");
  expect_refused("2x", "'' is not a number of ranks, for axis 1");
  expect_refused("x2", "'' is not a number of ranks, for axis 0");
  expect_refused("2xtwo", "'two' is not a number of ranks, for axis 1");
  expect_refused("2x2.5", "'2.5' is not a number");
  expect_refused("2X4", "'2X4' is not a number");
  expect_refused(" 2", "' 2' is not a number");
  expect_refused("99999999999", "more than 2147483647 ranks");
  expect_refused("65536x65536", "more than 2147483647 ranks");
  expect_refused("2,4", "'2' is not an axis with its number of ranks, such as tensor=4");
  expect_refused("data=2,", "'' is not an axis");
  expect_refused("data=", "'' is not a number of ranks, for axis data");
  expect_refused("data=2,data=2", "two axes are named data");
  expect_refused("=2", "'' is not the name of an axis");
  expect_refused("0=2", "'0' is not the name of an axis");
  expect_refused("data=2x4", "'2x4' is not a number of ranks, for axis data");
}

}  // namespace
}  // namespace spool::testing
