#pragma once

// Computes the matrix products of a model's linear layers, forward and backward, with oneDNN alone.

#include <memory>

#include "spool/models/families/model_config.h"

namespace spool::benchmarks {

class Products {
 public:
  Products(const ModelConfig&, DType, int64_t tokens);
  ~Products();

  // Runs all products of one step, one after the other, on all threads.
  void run();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace spool::benchmarks
