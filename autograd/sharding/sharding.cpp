#include "spool/autograd/sharding/sharding.h"

#include <algorithm>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// The leading dimensions, `count` of them, as one of this extent.
Shape with_leading(const Shape& shape, int count, int64_t extent) {
  switch (shape.rank() - count) {
    case 0:
      return {extent};
    case 1:
      return {extent, shape[count]};
    case 2:
      return {extent, shape[count], shape[count + 1]};
    default:
      return shape.with(0, extent);
  }
}

}  // namespace

bool is_integer(DType t) { return t == DType::i32 || t == DType::u16 || t == DType::i8; }

WholeValue plain_value(const Spec& spec) {
  WholeValue value{.spec = spec};
  for (int d = 0; d < spec.shape.rank(); ++d) {
    value.dimensions.push_back({.parts = {spec.shape[d]}, .units = spec.shape[d]});
  }
  return value;
}

int64_t ways(const Sharding& sharding, int dimension, const MeshAxes& mesh) {
  int64_t n = 1;
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (sharding[a].cuts(dimension)) n *= mesh[a];
  }
  return n;
}

JoinedRows joined_rows(const WholeValue& value, const Sharding& sharding, const MeshAxes& mesh,
                       int rows) {
  const Shape& shape = value.spec.shape;
  const int64_t n = shape.rank() ? ways(sharding, 0, mesh) : 1;
  if (n == 1) return {};
  const DimensionParts& first = value.dimensions[0];
  JoinedRows joined{.extent = first.units, .divides = first.units % n == 0};
  if (joined.divides || first.units != shape[0]) return joined;
  for (int d = 1; d < std::min(shape.rank(), rows) && ways(sharding, d, mesh) == 1; ++d) {
    joined = {.dimensions = d + 1, .extent = joined.extent * shape[d]};
    joined.divides = joined.extent % n == 0;
    if (joined.divides) break;
  }
  return joined;
}

std::optional<Shape> local_shape(const WholeValue& value, const Sharding& sharding,
                                 const MeshAxes& mesh, int rows) {
  Shape shape = value.spec.shape;
  for (int d = 1; d < shape.rank(); ++d) {
    const int64_t n = ways(sharding, d, mesh);
    if (value.dimensions[static_cast<size_t>(d)].units % n) return std::nullopt;
    shape = shape.with(d, shape[d] / n);
  }
  const int64_t n = shape.rank() ? ways(sharding, 0, mesh) : 1;
  if (n == 1) return shape;
  const JoinedRows joined = joined_rows(value, sharding, mesh, rows);
  if (!joined.divides) return std::nullopt;
  if (joined.dimensions == 1) return shape.with(0, shape[0] / n);
  return with_leading(shape, joined.dimensions, joined.extent / n);
}

Spec local_spec(const WholeValue& value, const Sharding& sharding, const MeshAxes& mesh) {
  const auto shape = local_shape(value, sharding, mesh);
  if (!shape) {  // words that take time are made only where they are needed
    fail(ErrorKind::invalid, "sharding: ", value.spec, " does not divide into ",
         in_words(sharding, value.spec.shape.rank(), mesh), " on ", mesh.text());
  }
  return {*shape, value.spec.dtype};
}

std::string in_words(State s) {
  if (s.is_cut()) return "cut " + std::to_string(s.dimension());
  return s == State::whole() ? "whole" : s == State::shared() ? "shared" : "partial";
}

std::string in_words(const Sharding& sharding, int rank, const MeshAxes& mesh) {
  const auto axes_of = [&](State state) {
    std::string axes;
    for (size_t a = 0; a < mesh.size(); ++a) {
      if (sharding[a] == state) axes += std::to_string(a);
    }
    return axes;
  };
  std::string words;
  for (int d = 0; d < rank; ++d) {
    const std::string axes = axes_of(State::cut(d));
    words += axes.empty() ? "R" : "S" + axes;
  }
  if (const std::string axes = axes_of(State::shared()); !axes.empty()) words += "+H" + axes;
  if (const std::string axes = axes_of(State::partial()); !axes.empty()) words += "+P" + axes;
  return words;
}

}  // namespace spool
