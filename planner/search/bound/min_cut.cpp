#include "spool/planner/search/bound/min_cut.h"

#include <algorithm>

namespace spool {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

int MinCut::add_edge(int from, int to, int64_t capacity) {
  const auto number = static_cast<int>(edges_.size());
  edges_.push_back({.to = to, .next = first_[at(from)], .capacity = capacity});
  edges_.push_back({.to = from, .next = first_[at(to)]});
  first_[at(from)] = number;
  first_[at(to)] = number + 1;
  return number / 2;
}

bool MinCut::find_levels(int source, int sink) {
  level_.assign(first_.size(), -1);
  queue_.assign(1, source);
  level_[at(source)] = 0;
  for (size_t i = 0; i < queue_.size(); ++i) {
    for (int e = first_[at(queue_[i])]; e >= 0; e = edges_[at(e)].next) {
      const Edge& edge = edges_[at(e)];
      if (edge.left == 0 || level_[at(edge.to)] >= 0) continue;
      level_[at(edge.to)] = level_[at(queue_[i])] + 1;
      queue_.push_back(edge.to);
    }
  }
  return level_[at(sink)] >= 0;
}

// Pushes flow along one path of rising levels; returns 0 if there is none.
int64_t MinCut::push(int source, int sink) {
  path_.clear();
  int vertex = source;
  while (vertex != sink) {
    int& e = next_[at(vertex)];
    while (e >= 0) {
      const Edge& edge = edges_[at(e)];
      if (edge.left > 0 && level_[at(edge.to)] == level_[at(vertex)] + 1) break;
      e = edge.next;
    }
    if (e >= 0) {
      path_.push_back(e);
      vertex = edges_[at(e)].to;
      continue;
    }
    if (vertex == source) return 0;
    level_[at(vertex)] = -1;  // a dead end
    vertex = edges_[at(path_.back() ^ 1)].to;
    path_.pop_back();
  }
  int64_t flow = unlimited;
  for (const int e : path_) flow = std::min(flow, edges_[at(e)].left);
  for (const int e : path_) {
    edges_[at(e)].left -= flow;
    edges_[at(e ^ 1)].left += flow;
  }
  return flow;
}

int64_t MinCut::solve(int source, int sink) {
  for (Edge& edge : edges_) edge.left = edge.capacity;
  int64_t total = 0;
  while (find_levels(source, sink)) {
    next_ = first_;
    while (const int64_t flow = push(source, sink)) total += flow;
  }
  return total;
}

}  // namespace spool
