#pragma once

// A model of text, of any family (families.h), as training, evaluation, generation and files use
// it.  B is the number of rows, T the tokens of a row, C the channels, V the vocabulary.
//
// The token embedding, and the head if it is another tensor, have V rows and padding up to a
// multiple of 64.  The padding is zero, has no probability and no gradient, and is in no file.

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/autograd/parameters.h"
#include "spool/models/families/key_value_cache.h"
#include "spool/models/families/linear.h"
#include "spool/models/families/model_config.h"
#include "spool/models/formats/tensor_file.h"

namespace spool {

// Rows of a parameter that are a tensor of their own in files.
struct StoredRows {
  std::string name;  // in transformers
  Range rows = {};
  bool conv1d = false;  // a matrix that transformers stores transposed, as (in, out)
};

// Rows of tokens, i32 (B, T), with their positions in their texts.
struct Text {
  Var tokens;
  Var positions = {};  // i32 (B, T); absent: 0 to T - 1, or counted on from a cache's length
  // The first token of its row that each token attends to: i32 (B, T).  With a cache (B): the index
  // in the cache of the text's first token, after padding.  Absent: 0.
  Var first = {};

  Text(Var t) : tokens(std::move(t)) {}
  Text(Var t, Var p, Var f) : tokens(std::move(t)), positions(std::move(p)), first(std::move(f)) {}
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  const ModelShape& shape() const { return shape_; }
  // Tokens of the longest row that it can read: at most the context.
  int64_t longest_row() const { return longest_row_; }
  DType dtype() const { return parameters_.dtype(); }
  Parameters& parameters() { return parameters_; }

  // The output of the last norm, (B, T, C).
  virtual Var hidden(const Text&, float dropout = 0) = 0;
  // The same for tokens that follow those in the cache, to which it appends them; on a tape that
  // does not record.
  virtual Var hidden(const Text&, KeyValueCache&) = 0;
  // The weight of the head, (padded V, C).
  virtual Parameter& head() = 0;
  // The tensors of a parameter in files: its rows, without padding, in order.
  std::vector<StoredRows> layout(const Parameter&) const;

  // A weight with adapters: their parameters A (G rank, in) and B (.., rank), and the linears, rows
  // of the weight, that have one each, in order, as PEFT names them.
  struct Adapted {
    const Parameter *weight = nullptr, *a = nullptr, *b = nullptr;
    std::vector<StoredRows> linears = {};
  };
  const std::vector<Adapted>& adapters() const { return adapters_; }
  // Of a parameter of adapters; else null.
  const Adapted* adapted_by(const Parameter&) const;

  // Draws random weights.
  void initialise(uint64_t seed);
  // Sets the padding to zero; for loaded parameters.
  void clear_padding();
  // The order of sums in attention's backward; fixed unless set.
  void set_sum_order(SumOrder order) { sum_order_ = order; }

  // Cross-entropy against targets i32 (B, T).  Positions that are not to be learnt, such as
  // padding, have the target CrossEntropyOptions::ignore_index.
  Var loss(const Text&, const Var& targets, float dropout = 0,
           Reduction reduction = Reduction::mean);
  // Rows (N, C) of the result of hidden() -> (N, padded V).
  Var logits(const Var& hidden);
  // An empty cache for B texts of up to `tokens` tokens (0: the longest row), on the model's
  // stream.
  KeyValueCache make_cache(int64_t B = 1, int64_t tokens = 0) const;
  // The keys, or the values, of a layer in it.
  Spec each_cached(int64_t B, int64_t tokens) const;

 protected:
  // With adapters all else is frozen.
  Model(const ModelConfig&, DType, Stream&, int64_t longest_row, const LoraConfig& = {});

  // The tensors in files of a parameter that is no adapter's.
  virtual std::vector<StoredRows> base_layout(const Parameter&) const;

  // Adds the parameters `name`.weight of this shape, (O, K), and, if wanted, `name`.bias of zeros;
  // and the adapters of those of its rows that are targets.
  Linear add_linear(const std::string& name, const Shape& weight, const InitialValues&, bool bias);
  // Adds a parameter with a row for each token, and padding.
  Parameter& add_rows_of_tokens(std::string_view name, const InitialValues&);
  SumOrder sum_order() const { return sum_order_; }

 private:
  friend class ModelConfig;  // gives a model it makes the config.json that was read

  std::shared_ptr<const LinearAdapter> adapt(const Parameter& weight);
  bool is_target(const std::string& linear);
  // Throws, naming the linears that there are, if a target is none.
  void check_targets() const;

  ModelConfig config_;
  ModelShape shape_;
  int64_t longest_row_;
  SumOrder sum_order_ = SumOrder::fixed;
  Parameters parameters_;
  std::vector<const Parameter*> padded_;
  LoraConfig lora_;
  std::vector<Adapted> adapters_;
  std::set<std::string> targets_found_ = {};
  std::set<std::string> linears_ = {};  // the last parts of their names
};

// The standard deviation of random matrices.
inline constexpr float initial_deviation = 0.02f;

// How a file stores a model's tensors.
struct StoredAs {
  std::string_view prefix = {};  // of every name
  bool conv1d = true;            // Conv1D matrices are transposed
};

// Tensors parallel to the model's parameters (their data, or one kind of optimizer state), under
// transformers' names, without padding.  Absent ones are left out.
std::vector<NamedTensor> stored(Model&, const std::vector<TensorContents>& parallel,
                                const StoredAs& = {});
// The parameters themselves, without adapters.
std::vector<NamedTensor> stored_parameters(Model&, const StoredAs& = {});
// Those of adapters, under PEFT's names, which begin so.
inline constexpr const char* adapter_prefix = "base_model.model.";
std::vector<NamedTensor> stored_adapters(Model&);

}  // namespace spool
