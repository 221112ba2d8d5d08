#pragma once

// A model loaded from a file, ready to be measured: its weights and an evaluator, in an arena of
// exactly the size that they need.

#include <memory>

#include "spool/models/families/model_file.h"
#include "spool/models/inference/evaluator.h"

namespace spool {

class LoadedModel {
 public:
  struct Options {
    DType dtype = DType::f32;  // of the computation, f32 or bf16
    int64_t batch = 4;         // rows
    int64_t seq = 0;           // tokens of a row; 0: the model's context
    Device device = {};
    int threads = 0;  // of a CPU; 0: one per core
  };

  // Throws if the options or the file's tensors do not suit the model, or memory does not suffice.
  LoadedModel(const ModelFile&, const Options&);

  Evaluator& evaluator() { return work_->evaluator; }
  int64_t batch() const { return options_.batch; }
  int64_t seq() const { return options_.seq; }

 private:
  struct Work {
    Gpt2 model;
    BatchInput input;
    Evaluator evaluator;
    Work(const Gpt2Config&, const Options&, const Plan&, Stream&);
  };

  Options options_;
  Plan plan_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Work> work_;
};

}  // namespace spool
