#include "spool/models/families/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/kernels/matmul.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/weights_file.h"
#include "spool/models/formats/convert_elements.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Refuses a field that asks for something, unless it is null, empty or what changes nothing.
void expect_nothing(const JsonField& config, const char* key, const json& harmless) {
  const auto field = config.find(key);
  if (!field || field->is_null() || field->value() == harmless) return;
  const json& value = field->value();
  const bool is_empty = (value.is_object() || value.is_array()) && value.empty();
  field->expect(is_empty, excerpt(value), " is not supported");
}

void expect_plain_lora(const JsonField& config) {
  const JsonField type = config.member("peft_type");
  type.expect(type.string() == "LORA", excerpt(type.value()), " is not LORA");
  const std::map<const char*, json> harmless{
      {"bias", "none"}, {"use_dora", false}, {"lora_bias", false}, {"use_qalora", false}};
  for (const auto& [key, value] : harmless) expect_nothing(config, key, value);
  for (const char* key :
       {"modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform",
        "layer_replication", "exclude_modules", "target_parameters", "trainable_token_indices",
        "megatron_config", "alora_invocation_tokens", "arrow_config", "use_bdlora"}) {
    expect_nothing(config, key, json());
  }
  // Others change the base's weights, too, when training begins.
  if (const auto begun = config.find("init_lora_weights"); begun && begun->is_string()) {
    const std::string how = begun->string();
    const bool is_plain = how == "gaussian" || how == "eva" || how == "orthogonal";
    begun->expect(is_plain, excerpt(begun->value()),
                  " changes the weights of the model, too, which is not supported; save the "
                  "adapter as plain LoRA (path_initial_model_for_weight_conversion)");
  }
}

// The targets: names of linears, or all.
std::vector<std::string> targets_of(const JsonField& field) {
  if (field.is_string()) {
    field.expect(field.string() == "all-linear", excerpt(field.value()),
                 " is a regular expression; give the names of linears, or all-linear");
    return {};
  }
  std::set<std::string> names;
  for (const JsonField& name : field.items()) names.insert(name.string());
  field.expect(!names.empty(), "names no linears");
  return {names.begin(), names.end()};
}

LoraConfig lora_config(const JsonField& config) {
  expect_plain_lora(config);
  constexpr int64_t max_rank = int64_t{1} << 16;
  const JsonField alpha = config.member("lora_alpha");
  alpha.expect(std::abs(alpha.number()) <= max_lora_alpha, excerpt(alpha.value()),
               " is beyond what a scale can be, ", max_lora_alpha);
  LoraConfig lora{.rank = config.member("r").integer<int64_t>(1, max_rank),
                  .alpha = alpha.number()};
  if (const auto p = config.find("lora_dropout")) {
    lora.dropout = static_cast<float>(p->number());
    p->expect(lora.dropout >= 0 && lora.dropout < 1, excerpt(p->value()), " is not in [0, 1)");
  }
  if (const auto is_rs = config.find("use_rslora")) lora.rank_stabilised = is_rs->boolean();
  lora.targets = targets_of(config.member("target_modules"));
  return lora;
}

std::string base_of(const JsonField& config) {
  const auto base = config.find("base_model_name_or_path");
  return base && base->is_string() ? base->string() : std::string();
}

fs::path weights_of_adapter(const fs::path& folder) {
  const bool is_of_torch = path_exists(folder / "adapter_model.bin");
  check_file(path_exists(folder / adapter_weights_name), folder, "has ", adapter_config_name,
             ", but no ", adapter_weights_name,
             is_of_torch ? "; its adapter_model.bin is a file of PyTorch, so save it again with "
                           "save_pretrained(safe_serialization=True)"
                         : "; copy it there, too");
  return folder / adapter_weights_name;
}

// The adapter of one linear, on the host.
struct Pair {
  std::vector<float> a, b;  // (r, in), (out, r)
  int64_t rank = 0, in = 0;
};
using Pairs = std::map<std::string, Pair>;  // by the linear, as the model stores it

TensorContents into(std::vector<float>& to, const Shape& shape) {
  to.resize(static_cast<size_t>(shape.numel()));
  const auto write = [&to](size_t begin, std::span<const std::byte> in) {
    std::ranges::copy(
        in, std::as_writable_bytes(std::span(to)).begin() + static_cast<std::ptrdiff_t>(begin));
  };
  return {Spec{shape, DType::f32}, [](size_t, std::span<std::byte>) {}, write};
}

// Where the tensors of adapters go, and the linears' names, by a model that has none of its memory.
Pairs read_pairs(const AdapterFile& file, const ModelConfig& base) {
  MetaStream nothing{Machine{}};
  constexpr int64_t one_token = 1;
  const auto model = base.adapted(file.lora()).make(DType::f32, nothing, one_token);
  Pairs pairs;
  std::vector<NamedTensor> wanted;
  for (const Model::Adapted& adapted : model->adapters()) {
    const auto a = model->layout(*adapted.a), b = model->layout(*adapted.b);
    const std::vector<StoredRows> stored = model->layout(*adapted.weight);
    for (size_t i = 0; i < a.size(); ++i) {
      const auto linear = std::ranges::find(stored, adapted.linears[i].rows.begin,
                                            [](const StoredRows& s) { return s.rows.begin; });
      Pair& pair = pairs[linear->name];
      pair.rank = file.lora().rank, pair.in = adapted.a->whole().shape[1];
      wanted.push_back({.name = a[i].name, .tensor = into(pair.a, {pair.rank, pair.in})});
      wanted.push_back({.name = b[i].name, .tensor = into(pair.b, {b[i].rows.size(), pair.rank})});
    }
  }
  file.load(wanted);
  return pairs;
}

// What merges the linears of a model, which are read one after the other: room for the adapter of
// one, for the products of a piece of it, with a row at each end, and for what these take.
std::shared_ptr<CpuStream> stream_for(const Pairs& pairs) {
  constexpr size_t of_products = size_t{64} << 20;
  size_t most = 0;
  for (const auto& [name, p] : pairs) {
    const size_t rows = 2 * static_cast<size_t>(p.in);
    most = std::max(most, (p.a.size() + p.b.size() + rows) * sizeof(float));
  }
  return std::make_shared<CpuStream>(most + TensorContents::max_range + of_products);
}

// Adds scale B A to rows of a weight, as they are read.
class Merge {
 public:
  Merge(Pair pair, double scale, std::shared_ptr<CpuStream> stream)
      : pair_(std::move(pair)), scale_(scale), stream_(std::move(stream)) {}

  // Elements from `first` on.
  void add_to(std::span<float> elements, int64_t first) {
    const int64_t out = std::ssize(pair_.b) / pair_.rank, in = pair_.in;
    if (!a_) {
      a_ = make_tensor<float>({pair_.rank, in}, pair_.a, *stream_);
      b_ = make_tensor<float>({out, pair_.rank}, pair_.b, *stream_);
    }
    const int64_t end = first + std::ssize(elements), row = first / in;
    const Range rows{row, (end + in - 1) / in};
    const Tensor products({Shape{rows.size(), in}}, *stream_);
    launch(Matmul{.c = products, .a = b_.slice(rows), .b = a_, .alpha = scale_}, *stream_);
    const std::vector<float> sums = read<float>(products);
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] += sums[i + static_cast<size_t>(first - row * in)];
    }
    if (end == out * in) a_ = b_ = {};
  }

 private:
  Pair pair_;
  double scale_;
  std::shared_ptr<CpuStream> stream_;
  Tensor a_, b_;  // while the linear is read
};

// Tensors that, as f32, take what is read, and pass on the sum.
TensorContents merged(const TensorContents& to, const std::shared_ptr<Merge>& merge) {
  const auto read = [to](size_t begin, std::span<std::byte> out) { to.read(begin, out); };
  const auto write = [to, merge](size_t begin, std::span<const std::byte> in) {
    const size_t first = begin / sizeof(float), count = in.size() / sizeof(float);
    std::vector<float> sums(count);
    std::ranges::copy(in, std::as_writable_bytes(std::span(sums)).begin());
    merge->add_to(sums, static_cast<int64_t>(first));
    const size_t size = size_of(to.dtype());
    to.write(first * size, count * size, [&](std::span<std::byte> out) {
      convert_elements(std::as_bytes(std::span(sums)), StoredType::F32, to.dtype(), out.data());
    });
  };
  return {Spec{to.shape(), DType::f32}, read, write};
}

std::vector<std::string> target_modules(const Model& model) {
  const LoraConfig& lora = model.config().lora();
  if (!lora.targets.empty()) return lora.targets;
  std::set<std::string> ends;
  for (const Model::Adapted& adapted : model.adapters()) {
    for (const StoredRows& linear : adapted.linears) {
      ends.insert(linear.name.substr(linear.name.rfind('.') + 1));
    }
  }
  return {ends.begin(), ends.end()};
}

}  // namespace

bool has_adapter(const fs::path& folder) {
  return path_exists(folder / adapter_config_name) && !has_weights_in(folder);
}

AdapterFile::AdapterFile(const fs::path& folder)
    : folder_(folder),
      lora_(lora_config(read_json(folder / adapter_config_name))),
      base_(base_of(read_json(folder / adapter_config_name))),
      tensors_(weights_of_adapter(folder)) {}

void AdapterFile::load(const std::vector<NamedTensor>& adapters,
                       const FileProgress& progress) const {
  load_tensors(tensors_, adapters, /*ignored=*/{}, progress);
}

void AdapterFile::merge_into(std::vector<NamedTensor>& tensors, const ModelConfig& base) const {
  Pairs pairs = read_pairs(*this, base);
  const auto stream = stream_for(pairs);
  for (NamedTensor& t : tensors) {
    const auto pair = pairs.find(t.name);
    if (pair == pairs.end()) continue;
    t.tensor =
        merged(t.tensor, std::make_shared<Merge>(std::move(pair->second), lora_.scale(), stream));
  }
}

void save_adapter(const fs::path& folder, Model& model, const std::vector<TensorContents>& exact,
                  const fs::path& base, const Metadata& metadata) {
  std::vector<TensorContents> adapters = exact;
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (!model.adapted_by(*model.parameters()[i])) adapters[i] = {};
  }
  Metadata all = metadata;
  all["format"] = "pt";
  save_tensors(folder / adapter_weights_name, stored(model, adapters), all);
  const LoraConfig& lora = model.config().lora();
  const json config{{"peft_type", "LORA"},
                    {"task_type", "CAUSAL_LM"},
                    {"r", lora.rank},
                    {"lora_alpha", lora.alpha},
                    {"lora_dropout", lora.dropout},
                    {"use_rslora", lora.rank_stabilised},
                    {"target_modules", target_modules(model)},
                    {"bias", "none"},
                    {"fan_in_fan_out", model.config().as<Gpt2Config>() != nullptr},
                    {"inference_mode", true},
                    {"base_model_name_or_path", base.string()}};
  write_text_file_atomically(folder / adapter_config_name, config.dump(2) + "\n");
}

}  // namespace spool
