#include "spool/models/families/model.h"

#include <algorithm>

#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/formats/named_parameters.h"

namespace spool {

Model::Model(const ModelConfig& config, DType dtype, Stream& stream, int64_t longest_row)
    : config_(config),
      shape_(config.shape()),
      longest_row_(longest_row),
      parameters_(stream, dtype) {}

Linear Model::add_linear(const std::string& name, const Shape& weight, const InitialValues& initial,
                         bool bias) {
  Linear layer{.weight = &parameters_.add(name + ".weight", weight, initial)};
  if (bias) layer.bias = &parameters_.add(name + ".bias", {weight[0]}, zeros());
  return layer;
}

Parameter& Model::add_rows_of_tokens(std::string_view name, const InitialValues& initial) {
  Parameter& rows = parameters_.add(name, {shape_.padded_vocabulary(), shape_.channels}, initial);
  padded_.push_back(&rows);
  return rows;
}

void Model::initialise(uint64_t seed) {
  parameters_.initialise(seed);
  clear_padding();
}

void Model::clear_padding() {
  const int64_t C = shape_.channels;
  const Range padding{shape_.vocabulary * C, shape_.padded_vocabulary() * C};
  if (padding.size() == 0) return;
  for (const Parameter* p : padded_) {
    const Range own = p->part ? p->part->stretches(padding).own : padding;
    if (!p->data || own.size() == 0) continue;
    launch(Fill{.out = p->data.view().slice_elements(own)}, parameters_.stream());
  }
}

std::vector<StoredRows> Model::layout(const Parameter& p) const {
  const bool padded = std::ranges::find(padded_, &p) != padded_.end();
  const int64_t rows = padded ? shape_.vocabulary : p.whole().shape[0];
  return {{.name = std::string(std::string_view(p.name)), .rows = {0, rows}}};
}

Var Model::loss(const Text& text, const Var& targets, float p, Reduction reduction) {
  const Var x = hidden(text, p);
  return linear_cross_entropy(
      x, head(), targets, {.reduction = reduction, .options = {.vocabulary = shape_.vocabulary}});
}

Var Model::logits(const Var& hidden) { return linear(hidden, head()); }

KeyValueCache Model::make_cache(int64_t B, int64_t tokens) const {
  return {shape_.layers, each_cached(B, tokens).shape, dtype(), parameters_.stream()};
}

Spec Model::each_cached(int64_t B, int64_t tokens) const {
  const int64_t positions = tokens == 0 ? longest_row_ : tokens;
  return {Shape{B, shape_.heads.key, positions, shape_.head}, dtype()};
}

std::vector<NamedTensor> stored(Model& model, const std::vector<TensorContents>& parallel,
                                const StoredAs& as) {
  const Parameters& parameters = model.parameters();
  check(parallel.size() == parameters.size(), "stored: ", parallel.size(), " tensors for ",
        parameters.size(), " parameters");
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < parallel.size(); ++i) {
    if (!parallel[i]) continue;
    for (const StoredRows& part : model.layout(*parameters[i])) {
      const bool whole = part.rows.size() == parallel[i].shape()[0];
      all.push_back({.name = std::string(as.prefix).append(part.name),
                     .tensor = whole ? parallel[i] : parallel[i].slice(part.rows),
                     .transposed = as.conv1d && part.conv1d});
    }
  }
  return all;
}

std::vector<NamedTensor> stored_parameters(Model& model, const StoredAs& as) {
  std::vector<TensorContents> data;
  for (const Parameter* p : model.parameters()) data.push_back(contents_of(*p));
  return stored(model, data, as);
}

}  // namespace spool
