#pragma once

// A fixture for tests of saved tensors: a chain of ops, run under a plan.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

inline constexpr size_t plenty = size_t{64} << 20;
using Bits = std::vector<std::vector<double>>;

// Chains of square linears, with or without gelus between, on an input that needs no gradient.
class ChainTest : public ::testing::Test {
 protected:
  CpuStream stream{plenty, 2};
  HostLink link{stream, plenty};
  Offloader offloader{link};
  std::vector<Parameter> weights = make_weights(7, 4);
  Tensor x = normal({4, 4}, DType::f32, stream, 50), dy = normal({4, 4}, DType::f32, stream, 51);

  std::vector<Parameter> make_weights(int count, int64_t width) {
    std::vector<Parameter> all;
    for (int i = 0; i < count; ++i) {
      all.push_back({.name = "weight",
                     .data = normal({width, width}, DType::f32, stream, static_cast<uint64_t>(i))});
    }
    return all;
  }
  TapeOptions options(Plan plan = {}) { return {.plan = std::move(plan), .offloader = &offloader}; }

  Var chain(Var h) {
    for (Parameter& w : weights) h = linear(h, w);
    return h;
  }
  Bits take_gradients() {
    Bits all;
    for (Parameter& w : weights) {
      all.push_back(w.grad ? values(w.grad) : std::vector<double>());
      w.grad = {};
    }
    return all;
  }
  Bits gradients_of_chain(const TapeOptions& how) {
    Tape tape(stream, how);
    tape.backward({Root{chain(tape.input(x)), dy}});
    return take_gradients();
  }
  // gelu(linear) repeated; each gelu saves its linear's output.
  Var gelu_chain(Var h) {
    for (Parameter& w : weights) h = gelu(linear(h, w));
    return h;
  }
  Bits gradients_of_gelu_chain(const TapeOptions& how) {
    Tape tape(stream, how);
    tape.backward({Root{gelu_chain(tape.input(x)), dy}});
    return take_gradients();
  }
};

inline bool is_on_host(const Tape& tape, ValueId v) { return tape.is_packed(v); }

}  // namespace spool::testing
