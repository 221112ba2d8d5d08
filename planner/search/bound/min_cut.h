#pragma once

// Finds the minimum cut of a network between a source and a sink by Dinic's algorithm (Algorithm
// for Solution of a Problem of Maximum Flow in Networks with Power Estimation, 1970).

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace spool {

class MinCut {
 public:
  static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max() / 8;

  explicit MinCut(int vertices) : first_(static_cast<size_t>(vertices), -1) {}

  // Vertices are numbered from 0.  Edges are numbered in the order in which they are added.
  int add_edge(int from, int to, int64_t capacity);
  void set_capacity(int edge, int64_t capacity) {
    edges_[2 * static_cast<size_t>(edge)].capacity = capacity;
  }

  // Finds the cut; is_source_side() then describes its smallest source side.  The sum of the
  // capacities of all paths must be below `unlimited`.
  int64_t solve(int source, int sink);
  bool is_source_side(int vertex) const { return level_[static_cast<size_t>(vertex)] >= 0; }

 private:
  struct Edge {
    int to = 0, next = -1;  // the next edge of the same vertex
    int64_t capacity = 0, left = 0;
  };
  bool find_levels(int source, int sink);
  int64_t push(int source, int sink);

  std::vector<int> first_;   // edge of each vertex
  std::vector<Edge> edges_;  // an edge and its reverse stand together
  std::vector<int> level_, next_, queue_, path_;
};

}  // namespace spool
