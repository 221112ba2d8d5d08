#pragma once

// The model that `spool generate` writes with, on a stream of exactly the memory that it and its
// texts take; where ranks share it, this rank's part.

#include <memory>

#include "spool/models/cli/generation.h"
#include "spool/models/inference/evaluation.h"

namespace spool {

// What is written: so many texts at a time, of up to so many tokens.
struct TextWork {
  int64_t texts = 0;   // 0: one, not in a batch
  int64_t tokens = 0;  // of the longest text
  int64_t prompt = 0;  // tokens of the longest prompt
  int64_t added = 0;   // tokens added to it; 0: any number, to prompts of any length
};

class TextModel {
 public:
  // Where there are ranks, the others take the work that rank 0 gives.
  TextModel(const GenerateArguments&, const ModelFile&, TextWork);

  Model& model() const { return (*evaluation_)->model(); }
  Stream& stream() const { return *stream_; }
  const ShardedModel* shared() const { return (*evaluation_)->shared(); }

 private:
  std::unique_ptr<Stream> stream_;
  std::optional<PlacedEvaluation> evaluation_;
};

}  // namespace spool
