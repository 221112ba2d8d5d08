#pragma once

// Small nets whose regions run in chunks, on any stream, and one table of cases.  What holds of
// every case is checked on the cpu by every_case_test.cpp, and on cuda by the tests of cuda.

#include <functional>
#include <string>
#include <vector>

#include "spool/autograd/ops.h"
#include "tests/autograd/op_samples.h"
#include "tests/autograd/plan_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

constexpr size_t chunk_memory = size_t{64} << 20;

struct NetOptions {
  int64_t B = 2, T = 5, C = 8;
  DType dtype = DType::f32;
  float dropout = 0.25f;
  bool x_needs_grad = true;
};

// Parameters, inputs and the layers made of them; the same numbers on every device, up to rounding.
class Net {
 public:
  static constexpr int64_t V = 11;

  Net(Stream&, const NetOptions& = {});

  // Nodes: layer_norm, linear, gelu, linear, dropout, add.
  Var mlp(const Var& x);
  // Nodes: layer_norm, linear, attention, linear, add.
  Var mixer(const Var& x);
  Var loss(const Var& x, Reduction = Reduction::sum);

  TapeOptions options(Plan = {}) const;
  // The gradients of the parameters, which then have none; absent where they have none.
  std::vector<Tensor> take_gradients();

  Stream& stream;
  NetOptions of;
  Parameter norm_weight, norm_bias, fc, fc_bias, proj, proj_bias, square, qkv, head, tokens_weight;
  Tensor x, w;             // (B, T, C), and (C, C) that is no parameter
  Tensor tokens, targets;  // (B, T)
  Tensor random, loss_scale;

 private:
  std::vector<Parameter*> parameters();
};

// A tape of a net, and the nodes that run in chunks.
struct ChunkCase {
  std::string name;
  std::vector<Region> spans;
  // Returns what is differentiated; x and w are the net's.
  std::function<std::vector<Var>(Net&, const Var& x, const Var& w)> apply;
  int64_t extent = 10;  // of the index of the first span
};
const std::vector<ChunkCase>& chunk_cases();
const ChunkCase& chunk_case(const std::string& name);

// One step of a case.
class CaseRun {
 public:
  // The net sets the options that it has values for.
  CaseRun(const ChunkCase&, Stream&, const TapeOptions& = {}, const NetOptions& = {});

  void forward();
  void backward();
  Tape& tape() { return tape_; }
  Net& net() { return net_; }
  const std::vector<Var>& outputs() const { return outputs_; }
  std::vector<Tensor> output_tensors() const;
  // The gradients of x, w and the parameters; absent where there is none.
  std::vector<Tensor> take_gradients();

 private:
  const ChunkCase& case_;
  Net net_;
  Tape tape_;
  Var x_, w_;
  std::vector<Var> outputs_ = {};
};

// The program of a case, recorded on meta, and the plan that runs its spans in chunks.
Program program_of(const ChunkCase&, const NetOptions& = {});
Plan plan_of(const ChunkCase&, int chunks, const NetOptions& = {});
// A region in chunks of what a program has recorded.
Region region_of(const Program&, NodeId first, NodeId last, int chunks);

SampleValues run_case(const ChunkCase&, Stream&, const TapeOptions& = {}, const NetOptions& = {});
PlannedStep step_of(const ChunkCase&, const NetOptions& = {});

// max over tensors of difference().
double largest_difference(const std::vector<std::vector<double>>&,
                          const std::vector<std::vector<double>>&);

// Expectations that hold for every case on every device.
void expect_the_numbers_of_one_chunk(const ChunkCase&, Device);
void expect_the_foretold_peak(const ChunkCase&, Device);
void expect_a_granule_less_is_refused(const ChunkCase&, Device);
void expect_placements_keep_the_bits(const ChunkCase&, Device);
void expect_recomputing_around_keeps_the_bits(const ChunkCase&, Device);
void expect_the_outputs_without_recording(const ChunkCase&, Device);

}  // namespace spool::testing
