#pragma once

// Continues several texts at once: a pass reads the model's parameters for all of them.  Each text
// becomes what it would become alone, but for the rounding of sums.
//
// Texts are padded at the left, so the next token of all is in one column; a key-value cache has
// the columns.  Rows whose texts have ended are dropped when those that are left fit half of the
// rows, or another smaller power of two.

#include <functional>
#include <span>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/inference/sampling.h"

namespace spool {

class BatchGenerator {
 public:
  // A text, and the draws that continue it.
  struct Row {
    std::vector<int32_t> tokens;  // at least one
    Random random;
  };
  // Is given each token that continues text i of those given; returns whether the text goes on.
  using OnToken = std::function<bool(size_t text, int32_t token)>;

  // Allocates a cache for so many texts of up to so many tokens: at most the model's longest row.
  BatchGenerator(Model&, Stream&, int64_t rows, int64_t tokens);

  // Appends up to `count` tokens to each text.  A stop token ends a text, and is not appended.
  void extend(std::span<Row> texts, int64_t count, const SamplingOptions&, const OnToken& = {});

  // Does the device work of the shapes of extend(), for texts of up to so many tokens.
  void rehearse(int64_t rows, int64_t longest, int64_t count);

 private:
  struct Columns;
  void begin(std::span<Row> texts);
  void pass(const Columns&, bool last);
  void draw(std::span<Row> texts, const SamplingOptions&, const OnToken&);
  void drop_ended();
  int64_t rows() const { return cache_.rows(); }

  Model& model_;
  Stream& stream_;
  KeyValueCache cache_;
  Tensor logits_;                // f32 (rows, padded V)
  std::vector<float> host_;      // a copy of the rows in use
  std::vector<size_t> text_of_;  // the text of each row
  std::vector<int32_t> first_;   // the column where it begins
  std::vector<bool> has_ended_;
  std::vector<int32_t> next_;  // the token drawn for each row
};

}  // namespace spool
