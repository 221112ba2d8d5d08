#pragma once

// The axes along which ranks are arranged: "data=2,tensor=4", or "2x4" with the axes 0 and 1.  The
// last axis is the innermost, of neighbouring ranks: rank = data * 4 + tensor.

#include <string>
#include <string_view>
#include <vector>

namespace spool {

struct MeshAxis {
  std::string name = {};
  int size = 1;
};

struct MeshAxes {
  static constexpr size_t max_axes = 4;

  std::vector<MeshAxis> axes = {};

  size_t size() const { return axes.size(); }
  int operator[](size_t axis) const { return axes[axis].size; }
  int ranks() const;
  // "2x4", or "data=2,tensor=4".
  std::string text() const;
};

// Throws if the text has no axes, more than four, an axis of 0 ranks, or one twice.
MeshAxes parse_mesh(std::string_view);

}  // namespace spool
