#pragma once

// A model of which this rank has a part, as training steps see it.  The model itself is made on the
// rank's stream, where it allocates its inputs and constants and declares its parameters alone; its
// loss is recorded once, and cut, and applied to each tape from then on.  No line of the model
// changes: its code sees whole shapes.  A loss that differs from step to step is refused.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "spool/autograd/sharding/shard_program.h"
#include "spool/autograd/step_model.h"

namespace spool {

// A loss, or another result of a model, that was recorded and not run.
struct RecordedLoss {
  Program program = {};
  ValueId loss = -1;
  std::vector<Tensor> inputs = {};          // in the order in which the program has them
  std::map<ValueId, Sharding> stored = {};  // parameters and inputs that are in parts already
};
// Throws if the loss reads the numbers of what it computes.
RecordedLoss record_loss(StepModel&, Stream&);

// A recorded result that is applied to tapes as the program of a rank.
class ShardedPass {
 public:
  // The ranks outlive it.
  ShardedPass(RecordedLoss, Assignment, const MeshRanks&);

  const ShardProgram& program() const { return program_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  // The result, the same on all ranks.
  Var apply(Tape& tape) const { return apply(tape, inputs_); }
  // The same of what differs from what it was made of in attributes and inputs alone.
  Var apply(Tape&, const RecordedLoss&);

 private:
  Var apply(Tape&, const std::vector<Tensor>& inputs) const;

  ShardProgram program_;
  std::vector<Tensor> inputs_;
  std::vector<Parameter*> parameters_;  // of the program
  std::vector<int> wanted_;             // the result
};

class ShardedModel final : public StepModel {
 public:
  using Make = std::function<std::unique_ptr<StepModel>(Stream&)>;
  using Choose = std::function<Assignment(const RecordedLoss&)>;

  // Of the stream's ranks, which are as many as the mesh's, or a multiple, and all do the same.
  // Gradients of parameters that are shared (State::shared()) are to be added up after backward.
  // `in_flat_parts`: see Assignment.
  ShardedModel(const Make&, Choose, const MeshAxes&, Stream&, bool in_flat_parts = false);

  const ShardProgram& program() const { return loss_->program(); }
  // What apply() applies to a tape with these options, with parameters as they are stored; how it
  // is cut; and what applies it so.
  RecordedLoss record(const std::function<Var(Tape&)>& apply, TapeOptions) const;
  Assignment choose(const RecordedLoss& recorded) const;
  std::unique_ptr<ShardedPass> pass(RecordedLoss, Assignment) const;

  // The model's own, of each of which the rank has its part (Parameter::part).
  Parameters& parameters() override { return model_->parameters(); }
  void initialise(uint64_t seed) override { model_->initialise(seed); }
  // The same on all ranks.  Throws if the model's own loss is no longer what was recorded: it is
  // recorded again the 2nd time, the 4th, the 8th, and so on, of those in which it is applied; a
  // graph is replayed without.
  Var loss(Tape& tape) override;
  void upload_placeholder() override { model_->upload_placeholder(); }
  const MeshRanks* shards() const override { return &ranks_; }
  StepModel& whole() override { return *model_; }

 private:
  void divide(Parameter&, const ShardParameter*);
  void check_is_as_recorded(const RecordedLoss& now) const;

  MeshRanks ranks_;
  std::unique_ptr<StepModel> model_;
  Choose choose_;
  bool in_flat_parts_;
  std::unique_ptr<ShardedPass> loss_;
  // Of the loss as it was recorded: fingerprints of its nodes, which value it is, and parameters.
  IdTable<NodeId, uint64_t> recorded_ = {};
  ValueId recorded_loss_ = -1;
  std::vector<const Parameter*> recorded_parameters_ = {};
  uint64_t times_ = 0;  // that it was applied
};

// A model that declares its parameters alone, which have no memory yet.
std::unique_ptr<StepModel> make_declared(const ShardedModel::Make&, Stream&);

}  // namespace spool
