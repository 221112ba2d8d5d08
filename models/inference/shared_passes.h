#pragma once

// What a model computes for tokens that follow a cache, by ranks that share it: each has its part
// of the parameters and of the cache, and all of them get the whole result.  Each pass is recorded
// as the model's code says it and applied to the tape as this rank's part.

#include <map>
#include <memory>
#include <vector>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/families/model.h"

namespace spool {

class SharedPasses {
 public:
  // The arguments outlive it.  All ranks call it and its functions alike.
  SharedPasses(Model&, const ShardedModel&);

  // This rank's part of an empty cache for B texts of up to `tokens` tokens (Model::make_cache()).
  KeyValueCache make_cache(int64_t B, int64_t tokens);
  // Model::hidden() and Model::logits(), on a tape that does not record.
  Var hidden(Tape&, const Text&, KeyValueCache&);
  Var logits(Tape&, const Tensor& rows);

 private:
  // What is cut alike: hidden states or logits, of how many rows and tokens.
  struct Kind {
    bool is_hidden = false, has_positions = false;
    int64_t rows = 0, tokens = 0;
    auto operator<=>(const Kind&) const = default;
  };
  using Record = std::function<Var(Tape&, KeyValueCache*)>;
  Var apply(Tape&, const Kind&, const Record&, KeyValueCache*);
  RecordedLoss record(const Record&, KeyValueCache*) const;

  Model& model_;
  const ShardedModel& shared_;
  Spec each_cached_ = {};
  std::vector<Sharding> cached_ = {};  // keys and values, in the order in which a pass reads them
  std::map<Kind, std::unique_ptr<ShardedPass>> passes_ = {};
};

}  // namespace spool
