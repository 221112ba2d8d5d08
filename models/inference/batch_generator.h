#pragma once

// Continues several texts at once: each pass reads the model's parameters once for all of them.
// Each text becomes what it would become alone, up to the rounding of sums.
//
// Texts are padded at the left, so the next tokens of all are in one column, and the key-value
// cache is by columns.  Rows whose texts have ended are dropped when the remaining ones fit into
// half of the rows, or another smaller power of two.

#include <functional>
#include <span>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/inference/sampling.h"
#include "spool/models/inference/text_reader.h"

namespace spool {

class BatchGenerator {
 public:
  // A text, and the random numbers that continue it.
  struct Row {
    std::vector<int32_t> tokens;  // at least one
    Random random;
  };
  // Called with each token that is appended to text i; returns whether the text continues.
  using OnToken = std::function<bool(size_t text, int32_t token)>;

  // Allocates a cache for `rows` texts of up to `tokens` tokens: at most the model's longest row.
  // Ranks may share the model (text_reader.h).
  BatchGenerator(Model&, Stream&, int64_t rows, int64_t tokens,
                 const ShardedModel* shared = nullptr);

  // Appends up to `count` tokens to each text.  A stop token ends a text and is not appended.
  void extend(std::span<Row> texts, int64_t count, const SamplingOptions&, const OnToken& = {});

  // Does the device work of all shapes of extend(), for texts of up to `longest` tokens.
  void rehearse(int64_t rows, int64_t longest, int64_t count);

 private:
  // A pass over some tokens of each row.
  struct Columns {
    std::vector<int32_t> tokens, positions;  // (rows, n)
  };
  void begin(std::span<Row> texts);
  void pass(const Columns&, bool last);
  void draw(std::span<Row> texts, const SamplingOptions&, const OnToken&);
  void drop_ended();
  int64_t rows() const { return reader_.rows(); }

  Model& model_;
  TextReader reader_;
  std::vector<float> host_;      // a copy of the logits of the rows in use
  std::vector<size_t> text_of_;  // the text of each row
  std::vector<int32_t> first_;   // the column where each row's text begins
  std::vector<bool> has_ended_;
  std::vector<int32_t> next_;  // the last token drawn for each row
};

}  // namespace spool
