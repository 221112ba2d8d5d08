#pragma once

// The pass that appends one token to each text of a cache, on a GPU, where launches would take more
// time than the work.  What changes from token to token is read from device memory, so the pass is
// captured as a graph and replayed: a token takes an upload, the graph, and a copy of its logits to
// the host.  There is a graph for each number of texts, and for each power of two of the cache's
// rows that are read.

#include <set>
#include <span>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/steps/captured_graphs.h"

namespace spool {

class TokenPass {
 public:
  // The inputs of each row: what is appended, its position in the text, and where in the cache the
  // text begins.
  struct Rows {
    std::span<const int32_t> tokens = {}, positions = {}, first = {};
  };

  // Passes write their logits to rows of these, f32 (texts, padded V).
  TokenPass(Model&, const Tensor& logits, Stream&);

  // Whether passes of n tokens are its own.
  bool takes(int64_t n) const { return n == 1 && inputs_; }
  // Call it before each pass.  When a text begins, it does the work once for a token that the text
  // overwrites, so that libraries choose their algorithms before it is captured.
  void prepare(const KeyValueCache&);
  void run(KeyValueCache&, const Rows&);

 private:
  void upload(int64_t place, const Rows&);
  // The work, which reads so many rows of the cache; and the same from its graph.
  void enqueue(const KeyValueCache&, int64_t rows);
  void replay(const KeyValueCache&, int64_t rows);

  Model& model_;
  Stream& stream_;
  Tensor logits_, inputs_;   // i32: the place in the cache, then the three of each row
  std::set<int64_t> known_;  // numbers of texts whose work has been done
  CapturedGraphs graphs_;
};

}  // namespace spool
