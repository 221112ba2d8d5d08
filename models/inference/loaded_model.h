#pragma once

// Measuring a model that is in a file.

#include <memory>

#include "spool/models/families/model_file.h"
#include "spool/models/inference/evaluator.h"
#include "spool/models/training/trainer.h"

namespace spool {

// A model of weights in a file, and all that measuring it takes, in an arena of just that size.
class LoadedModel {
 public:
  struct Options {
    DType dtype = DType::f32;  // f32 or bf16, to compute in
    int64_t batch = 4;         // rows
    int64_t seq = 0;           // tokens of a row; 0: the model's context
    Device device = {};
    int threads = 0;  // of a cpu; 0: one per core
  };

  // Throws where the file or the options cannot be.
  LoadedModel(const ModelFile&, const Options&);

  Evaluator& evaluator() { return work_->evaluator; }
  int64_t batch() const { return batch_; }
  int64_t seq() const { return seq_; }

 private:
  struct Work {
    Gpt2 model;
    BatchInput input;
    Evaluator evaluator;
    Work(const TrainingConfig&, const Plan&, Stream&);
  };

  int64_t batch_, seq_;
  Plan plan_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Work> work_;
};

}  // namespace spool
