#pragma once

// Ways to cut a recorded loss over a mesh, and models of which ranks have parts beside what one
// rank computes.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spool/autograd/sharding/sharded_model.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

// Any strategy for each op: one that divides.
Assignment random_assignment(const RecordedLoss&, const MeshAxes&, uint64_t seed);
// The same, with parameters stored in any parts into which they divide.
Assignment randomly_stored(const RecordedLoss&, const MeshAxes&, uint64_t seed);

// The loss of a model, its gradients by the names of parameters, and the peak of memory.
struct Differentiated {
  Numbers loss = {};
  std::map<std::string, Numbers> gradients = {};
  size_t peak = 0;
};

class ComparedModel {
 public:
  // The loss is divided by this number.
  ComparedModel(ShardedModel::Make, int64_t targets);

  // By one rank that has all.
  const Differentiated& alone() const { return alone_; }
  // By this rank of a mesh, with others that do the same.
  Differentiated by_rank(const MeshAxes&, const ShardedModel::Choose&, Stream&,
                         const Plan& = {}) const;
  // What a rank's tape records, the same on all of them but for their places.
  Program program_of_rank(const MeshAxes&, const ShardedModel::Choose&) const;

  // Runs the model on ranks that are threads, and on the meta device, which foretells their peaks.
  void expect_as_one_rank(const MeshAxes&, const ShardedModel::Choose&, const Plan& = {}) const;
  // With `cases` random assignments, and storages of parameters.
  void expect_as_one_rank_at_random(const MeshAxes&, uint64_t cases) const;

 private:
  struct Rank {
    Differentiated found = {};
    std::vector<ShardParameter> parameters = {};
  };
  std::unique_ptr<ShardedModel> part(const MeshAxes&, const ShardedModel::Choose&, Stream&) const;
  TapeOptions options(Stream&) const;
  Rank differentiate(const MeshAxes&, const ShardedModel::Choose&, Stream&, const Plan&) const;
  void expect_same(const std::vector<Rank>&, const MeshAxes&) const;

  ShardedModel::Make make_;
  int64_t targets_;
  Differentiated alone_ = {};
};

}  // namespace spool::testing
