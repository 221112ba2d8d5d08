#pragma once

// A cut divides consecutive nodes of a program along one index, such as the rows of a batch, so
// that they can run a part of it at a time.  It is found from the index notation of the ops alone
// (Op::indices()).
//
// The index leads every value that carries it.  A first index stands for all leading dimensions
// that it covers, B * T of a (B, T, C), so the extent of the cut is the smallest that an op of the
// span gives it: with an op inside that looks along T, it is B.  If a value does not divide into
// that many parts, as after a reshape, the extent is the smallest first dimension.  Each value that
// carries the index is divided in proportion.  Values that lack it are used whole; where an op sums
// it away, its output is a sum over all parts.  Nodes that read no value with the index are
// computed once.

#include <string>
#include <vector>

#include "spool/autograd/program.h"
#include "spool/runtime/tensor.h"

namespace spool {

// The index of a node's notation that it is cut along, its extent there, and the first dimension of
// the values that it leads.
struct IndexOfNode {
  char index = ' ';
  int64_t extent = 0, leading = 0;
};

struct Cut {
  int64_t extent = 0;                     // of the index
  std::vector<NodeId> nodes = {};         // those that carry the index, in rising order
  std::vector<IndexOfNode> indices = {};  // of each of these nodes
  std::vector<ValueId> inputs = {};       // what they read and do not compute, parameters included
  std::vector<ValueId> carried = {};  // inputs and outputs that carry the index, in rising order
  std::string obstacle = {};          // why the nodes cannot be cut; empty: they can

  explicit operator bool() const { return obstacle.empty(); }
  bool carries(ValueId) const;
  bool has(NodeId) const;
};

// Cuts nodes `first` to `last` along the index that most of the computed elements carry.
Cut cut(const Program&, NodeId first, NodeId last);

// The values that nodes `first` to `last` compute and that are read outside: by later nodes, or by
// the caller, as far as the program has seen it.
std::vector<ValueId> find_leaves(const Program&, NodeId first, NodeId last);

// The shape of a value of which only `rows` of the index, of this extent, are left.
Shape part(const Shape& whole, int64_t extent, int64_t rows);
// These rows of a value, in place.
Tensor part(const Tensor& whole, int64_t extent, Range rows);
View part(const View& whole, int64_t extent, Range rows);

}  // namespace spool
