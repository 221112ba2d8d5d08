#pragma once

// A sharding says what of a value a rank has.  Along each axis of the mesh the value is in one of
// four states, and the state of its gradient follows:
//
//   state     a rank has                                         its gradient is
//   whole     all of it                                          whole
//   shared    all of it, for an op that is cut along this axis   a summand
//   partial   a summand                                          whole
//   cut       its part of a dimension                            cut alike
//
// Two axes may cut one dimension: the earlier one is the outer.  Parts are equal.  A cut of
// dimension 0 is a piece of memory; if dimension 0 alone does not divide, as many leading
// dimensions as do become one.  A dimension may have several parts (notation.h), each of which is
// cut by itself.

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "spool/autograd/sharding/mesh_axes.h"
#include "spool/runtime/shape.h"

namespace spool {

class State {
 public:
  constexpr State() = default;
  static constexpr State whole() { return State(-1); }
  static constexpr State shared() { return State(-2); }
  static constexpr State partial() { return State(-3); }
  static constexpr State cut(int dimension) { return State(static_cast<int8_t>(dimension)); }

  constexpr bool is_cut() const { return value_ >= 0; }
  constexpr int dimension() const { return value_; }  // that is cut
  constexpr bool cuts(int dimension) const { return value_ == dimension; }
  constexpr auto operator<=>(const State&) const = default;

 private:
  constexpr explicit State(int value) : value_(static_cast<int8_t>(value)) {}
  int8_t value_ = -1;
};

// A state for each axis of the mesh.
struct Sharding {
  std::array<State, MeshAxes::max_axes> along = {};
  State& operator[](size_t axis) { return along[axis]; }
  State operator[](size_t axis) const { return along[axis]; }
  auto operator<=>(const Sharding&) const = default;
};

// How a dimension can be cut: the lengths of its parts, each into as many equal units at most.
struct DimensionParts {
  std::vector<int64_t> parts = {};
  int64_t units = 1;
  bool operator==(const DimensionParts&) const = default;
};

// A value as all ranks together have it.
struct WholeValue {
  Spec spec = {};
  std::vector<DimensionParts> dimensions = {};
  bool operator==(const WholeValue&) const = default;
};
// Each of whose dimensions is one part.
WholeValue plain_value(const Spec&);

// Integers are whole or cut: they are not summed, and have no gradient.
bool is_integer(DType);

// Into how many parts a dimension is cut.
int64_t ways(const Sharding&, int dimension, const MeshAxes&);
// The leading dimensions that a cut of dimension 0 makes one.
struct JoinedRows {
  int dimensions = 1;
  int64_t extent = 1;   // of all, or the units of dimension 0 alone
  bool divides = true;  // by the ways of dimension 0
};
// `rows`: how many dimensions may become one.
JoinedRows joined_rows(const WholeValue&, const Sharding&, const MeshAxes&,
                       int rows = Shape::max_rank);

// What a rank has of the value; nothing if it does not divide.  `rows` as for joined_rows().
std::optional<Shape> local_shape(const WholeValue&, const Sharding&, const MeshAxes&,
                                 int rows = Shape::max_rank);
// The same; throws if it does not divide.
Spec local_spec(const WholeValue&, const Sharding&, const MeshAxes&);

// "whole", "shared", "partial", or "cut 1", of dimension 1.
std::string in_words(State);
// "RS0": R for a dimension of which a rank has all, S0 for one that is cut along axis 0, S01 along
// both; behind them "+H1" or "+P0" for axes along which it is shared or partial.
std::string in_words(const Sharding&, int rank, const MeshAxes&);

}  // namespace spool
