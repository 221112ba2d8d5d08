#pragma once

// Computes products by oneDNN alone, on all threads: each whole product is one of its primitives,
// which does not go through Spool's kernels.

#include <memory>
#include <string>
#include <vector>

#include "spool/kernels/matmul.h"

namespace spool::benchmarks {

class OnednnProducts {
 public:
  // On the kernels' memory, which must stay.
  OnednnProducts(const std::vector<Matmul>& products, int threads);
  ~OnednnProducts();

  // Why they cannot be computed: the build has no oneDNN, or this processor no such products that
  // are more than a reference.  Empty if they can.
  const std::string& absence() const { return absence_; }
  // Runs all, one after the other, and waits.
  void run();

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
  std::string absence_;
};

}  // namespace spool::benchmarks
