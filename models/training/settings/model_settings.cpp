// The settings of a run's model, data and tokenizer, whose values run.json has as JSON.

#include <nlohmann/json.hpp>

#include "spool/models/families/model_file.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

// The configuration of a preset, or of the weights that the run starts from.
ModelConfig numbers_of_model(const RunOptions& o) {
  if (const auto preset = model_preset(o.model)) return preset->config;
  check_setting(path_exists(o.model), {"model"}, "the model '", o.model,
                "' is neither a file or directory nor a preset; the presets are ",
                list_of_presets());
  return describe_model(paths_of(o)).config;
}

std::string fault_of_weights(const DType& type) {
  const bool is_right = type == DType::f32 || type == DType::bf16;
  return is_right ? std::string() : sentence("a model trains in f32 or bf16, not in ", name(type));
}

Setting shape_setting(const char* key, int64_t (*of)(const ModelShape&), const char* help) {
  const SettingAccess<int64_t> number{
      [of](const RunOptions& o) { return of(o.training.model.shape()); },
      [key](RunOptions& o, int64_t n) {
        check_setting(!has_weights(o.model), {key, "model"}, "{", key,
                      "} cannot be given if {model} has weights, whose shape is fixed");
        o.training.model = o.training.model.with(key, n);
      }};
  return {key, number, help, any_value, SettingKind::shape, DefaultShown::by_model};
}

}  // namespace

namespace settings {

const Settings model_table{
    {"model", &RunOptions::model,
     "Model: " + list_of_presets() + ", with random weights; or, to start from trained weights, " +
         model_forms,
     preset_or_path(), source, as_value},
    {"adapter", &RunOptions::adapter,
     "Folder of an adapter of the model, as PEFT stores it, which is trained further", path(),
     source, in_help},
    {"base", &RunOptions::base,
     "Where the model is that an adapter changes, if not where the adapter says, as after a move",
     path(), place, in_help},
    {"config", &TrainingConfig::model, "The model's numbers, as config.json has them", any_value,
     numbers, computed(numbers_of_model)},
    shape_setting(
        "layers", [](const ModelShape& m) { return m.layers; }, "Number of layers (blocks)"),
    shape_setting(
        "heads", [](const ModelShape& m) { return m.heads.query; },
        "Number of attention heads; must divide {channels}"),
    shape_setting(
        "channels", [](const ModelShape& m) { return m.channels; }, "Width of the residual stream"),
    shape_setting(
        "context", [](const ModelShape& m) { return m.context; },
        "Maximum number of tokens per row"),
    shape_setting(
        "vocab", [](const ModelShape& m) { return m.vocabulary; },
        "Size of the vocabulary, at least the tokenizer's"),
    {"dtype",
     &TrainingConfig::dtype,
     "Type of the weights: f32, or bf16 with f32 masters (but see {rounding})",
     {one_of({"f32", "bf16"}), fault_of_weights},
     numbers,
     as_value},
};

const Settings data_table{
    {"data", &RunOptions::data,
     "Files to train on, or globs: of text; shards of tokens; or of examples, each a line of JSON "
     "(.jsonl), such as conversations; by default Spool's own documents and sources",
     path(), place, in_help},
    {"val-data", &RunOptions::val_data,
     "Files or globs to validate with, of the same kind; by default the last tenth of {data}",
     path(), place, in_help},
    {"data-format", &RunOptions::data_format,
     "auto: a file is a shard of tokens, examples or text by its first bytes or its name, and "
     "anything else is refused; text: the bytes of any file as they are",
     one_of({"auto", "text"}), source, as_value},
    {"separate", &RunOptions::separate,
     "Let texts of several files run into each other; by default the token that ends a text, if "
     "the tokenizer has one, is between them",
     any_value, source, in_help},
    {"data-seed", &RunOptions::data_seed, "Seed of the order of the data; by default {seed}",
     any_value, numbers, in_help},
    {"epochs", &RunOptions::epochs,
     "How often examples are read, in place of {steps}: as many steps as that takes; by default 3",
     number_above_zero("the epochs"), execution, in_help},
    {"pack", &RunOptions::pack,
     "Give each example a row of its own; by default several share one, each as if it were alone",
     any_value, numbers, in_help},
    {"learn", &RunOptions::learn,
     "What of examples is learnt: assistant, what it says and completions; or all", one_of<Learn>(),
     source, as_value},
    {"system", &RunOptions::system,
     "What the assistant is told in conversations without a system message; by default nothing",
     any_value, source, in_help},
    {"chat-format", &RunOptions::chat_format,
     "The format of conversations: " + chat_format_names() +
         ", with or without +bos after it, or a file of JSON that describes it; by default that "
         "of the model's template, if it is a known one",
     known_chat_format(), source, in_help},
};

const Settings tokenizer_table{
    {"tokenizer", &TokenizerChoice::name,
     "Tokenizer: bytes, gpt2, or a tokenizer.json or a folder with one; by default the model's "
     "own, else gpt2 if {merges} is given, else bytes",
     any_value, numbers, in_help},
    {"merges", &TokenizerChoice::merges,
     "GPT-2's vocabulary: its merges.txt, or llm.c's gpt2_tokenizer.bin", any_value, execution,
     in_help},
};

}  // namespace settings
}  // namespace spool
