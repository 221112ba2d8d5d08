// Public: one of the headers of docs/public-headers.md.
#pragma once

// A model as training steps see it: its parameters, and the loss of the batch that stands in its
// inputs.  An implementation keeps both at fixed addresses, so that a step can be captured and
// replayed: it allocates its inputs once, as tensors of purpose `input`, and writes each batch into
// them.

#include "spool/autograd/parameters.h"
#include "spool/autograd/tape.h"

namespace spool {

class MeshRanks;
class ShardedModel;

class StepModel {
 public:
  StepModel() = default;
  virtual ~StepModel() = default;
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  virtual Parameters& parameters() = 0;
  // Sets the parameters to what training begins with.  Where ranks share each micro-batch, the data
  // of one is the rank's part: draw by Parameters::initialise(), or give all of it to write_whole()
  // (models/formats/parameter_file.h).
  virtual void initialise(uint64_t seed) { parameters().initialise(seed); }

  // Runs the model on the tape: the loss of the inputs, one element.  The losses of a step's
  // micro-batches add up, so a mean is over the valid targets of all of them, which
  // TapeOptions::loss_scale says; linear_cross_entropy() reads it by itself.
  virtual Var loss(Tape&) = 0;

  // Uploads a valid but meaningless batch into the inputs, by the same copies as a real one: for
  // rehearsals, and for what runs before the first step.  By default they run on what is there.
  virtual void upload_placeholder() {}

  // The ranks that share each micro-batch with this one (sharding/sharded_model.h); null: none.
  virtual const MeshRanks* shards() const { return nullptr; }
  // The model as it was written, of which each of those ranks has a part.
  virtual StepModel& whole() { return *this; }
  // Told to that model once each of them has its part, which outlives it: what else it computes is
  // then a ShardedPass.
  virtual void is_divided(const ShardedModel&) {}
};

}  // namespace spool
