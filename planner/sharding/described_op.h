#pragma once

// An op by itself, from a few numbers: the shape of its first operand, and what its others have.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/autograd/program.h"

namespace spool {

// What is not there has not been given.
struct OpDescription {
  std::string op = {};  // one of described_ops()
  Shape shape = {};     // of the first operand
  DType dtype = DType::f32;
  std::optional<int64_t> out = {};                   // outputs of a product
  std::optional<int64_t> vocab = {}, channels = {};  // of a table of tokens
  std::optional<int64_t> positions = {};             // of an embedding
  std::optional<Heads> heads = {};                   // of packed q, k and v
  std::optional<Transposed> transposed = {};         // factors of a matmul
  std::optional<float> label_smoothing = {};         // of the loss
  bool no_bias = false, shared = false;              // one second factor for all matrices
};

// "linear", "matmul" and so on.
std::vector<std::string> described_ops();

struct OperandName {
  std::string name = {};    // "weight"
  std::string symbol = {};  // "w"
};

// What a tape has recorded of the op alone, as training applies it.
struct DescribedOp {
  Program program = {};  // of one node
  std::vector<OperandName> inputs = {};
  std::map<char, std::string> counted = {};  // what an index counts, as of WholeOp

  const Node& node() const { return program.nodes[0]; }
};

// Throws an error of the settings shape, out, vocab and so on, if there is no such op, if a number
// that it needs is missing or one that it does not have is given, and if they do not fit it.
DescribedOp describe_op(const OpDescription&);

}  // namespace spool
