#include "spool/models/families/model.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/formats/named_parameters.h"

namespace spool {

Model::Model(const ModelConfig& config, DType dtype, Stream& stream, int64_t longest_row,
             const LoraConfig& lora)
    : config_(config),
      shape_(config.shape()),
      longest_row_(longest_row),
      parameters_(stream, dtype),
      lora_(lora) {
  parameters_.train_added(!lora_);
}

Linear Model::add_linear(const std::string& name, const Shape& weight, const InitialValues& initial,
                         bool bias) {
  Linear layer{.weight = &parameters_.add(name + ".weight", weight, initial)};
  if (bias) layer.bias = &parameters_.add(name + ".bias", {weight[0]}, zeros());
  if (lora_) layer.adapter = adapt(*layer.weight);
  return layer;
}

bool Model::is_target(const std::string& linear) {
  linears_.insert(linear.substr(linear.rfind('.') + 1));
  bool found = lora_.targets.empty();
  for (const std::string& target : lora_.targets) {
    if (linear != target && !linear.ends_with("." + target)) continue;
    targets_found_.insert(target);
    found = true;
  }
  return found;
}

void Model::check_targets() const {
  for (const std::string& target : lora_.targets) {
    check_setting(targets_found_.contains(target), {"lora-targets"},
                  "the model has no linear named ", target, "; it has ",
                  fmt::format("{}", fmt::join(linears_, ", ")));
  }
}

std::shared_ptr<const LinearAdapter> Model::adapt(const Parameter& weight) {
  const int64_t in = weight.whole().shape[1], rank = lora_.rank;
  LinearAdapter adapter{.scale = lora_.scale(), .dropout = lora_.dropout};
  Adapted adapted{.weight = &weight};
  int64_t rows = 0;
  for (StoredRows& part : base_layout(weight)) {
    // The file of a GPT-2 names its tensors from within the module `transformer`.
    part.name = (part.conv1d ? "transformer." : "") + part.name.substr(0, part.name.rfind('.'));
    if (!is_target(part.name)) continue;
    adapter.columns.push_back(part.rows);
    rows += part.rows.size();
    adapted.linears.push_back(std::move(part));
  }
  if (rows == 0) return nullptr;
  const std::string_view whole = weight.name;
  const std::string name(whole.substr(0, whole.rfind(".weight")));
  // The variance of PEFT's initial A, which is uniform in +-1 / sqrt(in).
  const float deviation = 1 / std::sqrt(3 * static_cast<float>(in));
  parameters_.train_added(true);
  adapter.a = &parameters_.add(name + ".lora_A", {std::ssize(adapter.columns) * rank, in},
                               normal(deviation));
  adapter.b = &parameters_.add(name + ".lora_B", {rows, rank}, zeros());
  parameters_.train_added(false);
  adapted.a = adapter.a, adapted.b = adapter.b;
  adapters_.push_back(std::move(adapted));
  return std::make_shared<const LinearAdapter>(std::move(adapter));
}

const Model::Adapted* Model::adapted_by(const Parameter& p) const {
  const auto found =
      std::ranges::find_if(adapters_, [&](const Adapted& x) { return &p == x.a || &p == x.b; });
  return found == adapters_.end() ? nullptr : &*found;
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
    if ((!p->data && !p->home) || own.size() == 0) continue;
    parameters_.with(*p->number, [&] {
      launch(Fill{.out = p->data.view().slice_elements(own)}, parameters_.stream());
    });
  }
}

std::vector<StoredRows> Model::layout(const Parameter& p) const {
  const Adapted* const adapted = adapted_by(p);
  if (!adapted) return base_layout(p);
  const bool is_a = &p == adapted->a;
  std::vector<StoredRows> all;
  int64_t row = 0;
  for (const StoredRows& linear : adapted->linears) {
    const int64_t end = row + (is_a ? lora_.rank : linear.rows.size());
    all.push_back(
        {.name = adapter_prefix + linear.name + (is_a ? ".lora_A.weight" : ".lora_B.weight"),
         .rows = {row, end}});
    row = end;
  }
  return all;
}

std::vector<StoredRows> Model::base_layout(const Parameter& p) const {
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
  for (const Parameter* p : model.parameters()) {
    data.push_back(model.adapted_by(*p) ? TensorContents() : contents_of(*p));
  }
  return stored(model, data, as);
}

std::vector<NamedTensor> stored_adapters(Model& model) {
  std::vector<TensorContents> data;
  for (const Parameter* p : model.parameters()) {
    data.push_back(model.adapted_by(*p) ? contents_of(*p) : TensorContents());
  }
  return stored(model, data);
}

}  // namespace spool
