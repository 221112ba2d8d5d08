#pragma once

// The hyperparameters of a model of any family (families.h), as an immutable value.
//
// A family's own configuration, such as a Gpt2Config, converts to it.  It is a regular type with
//   ModelShape shape() const;
//   int64_t parameter_count() const;                        // without padding
//   void validate() const;                                  // throws if no model can have these
//   void write(nlohmann::json&) const;                      // fields of transformers' config.json
//   Config with(std::string_view setting, int64_t) const;   // see ModelConfig::with()
//   TrainingDefaults defaults() const;                      // of trained weights
//   std::shared_ptr<Model> make(DType, Stream&, int64_t longest_row, const LoraConfig&) const;
//   std::string family() const;                             // in words: "GPT-2"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "spool/kernels/attention.h"
#include "spool/models/families/lora_config.h"
#include "spool/runtime/dtype.h"
#include "spool/runtime/integer.h"

namespace spool {

class Model;
class Stream;

// Upper limits for any model: layers, and every other extent.
inline constexpr int64_t max_layers = 10'000, max_extent = int64_t{1} << 24;

// An extent of a model that the settings give.
struct Extent {
  const char* setting;
  const char* words;
  int64_t value;
  int64_t max = max_extent;
};
// Throws unless each is positive and at most its `max`.
void check_extents(std::initializer_list<Extent>);

// Throws if the parameters of this many layers are too many to count.
void check_number_of_parameters(int64_t layers, int64_t of_layer);

// Numbers that every model has.
struct ModelShape {
  int64_t layers = 0, channels = 0, context = 0, vocabulary = 0;
  Heads heads = {};
  int64_t head = 0;  // channels of a head

  // Rows of the embedding and of the head.
  int64_t padded_vocabulary() const { return round_up<int64_t>(vocabulary, 64); }
};

// The defaults of a run of this model.
struct TrainingDefaults {
  double lr = 5e-5;  // small: trained weights are adjusted, not lost
  double beta2 = 0.95, decay = 0.1;
  int64_t batch = 4, accumulate = 1;
  int64_t loss_chunk = 0;         // rows of logits that are live at a time; 0: all
  int64_t longest_row = 1 << 24;  // tokens, if the context is not shorter
  double warmup = 0.05;           // fraction of the steps
};

class ModelConfig {
 public:
  // GPT-2 of 124M parameters.
  ModelConfig();
  template <class Config>
  requires requires(const Config& c) { c.family(), c.defaults(), c.parameter_count(); }
  ModelConfig(Config config) : held_(std::make_shared<const Held<Config>>(std::move(config))) {}

  ModelShape shape() const { return held_->shape(); }
  int64_t parameter_count() const { return held_->parameter_count(); }
  void validate() const { held_->validate(); }
  std::string family() const { return held_->family(); }
  TrainingDefaults defaults() const { return held_->defaults(); }
  // The same model with one number changed: layers, heads, channels, context or vocab.
  ModelConfig with(std::string_view setting, int64_t n) const {
    return held_->with(setting, n).adapted(lora_);
  }

  // The config.json that was read, or else the one that the family writes.
  nlohmann::json to_json() const;
  // The same configuration, with the config.json that it was read from.
  ModelConfig as_read(nlohmann::json) const;

  // The same model with adapters, which whoever makes it makes, too.
  ModelConfig adapted(LoraConfig) const;
  const LoraConfig& lora() const { return lora_; }

  // Allocates a model without setting its parameters: f32, bf16, or f64 for tests.  It reads rows
  // of at most `longest_row` tokens; 0: of its context.
  std::shared_ptr<Model> make(DType, Stream&, int64_t longest_row = 0) const;

  // The configuration as one of this family, or null if it is another's.
  template <class Config>
  const Config* as() const {
    const auto* held = dynamic_cast<const Held<Config>*>(held_.get());
    return held ? &held->config : nullptr;
  }
  // Whether the models compute the same, but for adapters.
  friend bool operator==(const ModelConfig& a, const ModelConfig& b) {
    return a.held_->equals(*b.held_);
  }

 private:
  struct Any {
    virtual ~Any() = default;
    virtual ModelShape shape() const = 0;
    virtual int64_t parameter_count() const = 0;
    virtual void validate() const = 0;
    virtual std::string family() const = 0;
    virtual TrainingDefaults defaults() const = 0;
    virtual void write(nlohmann::json&) const = 0;
    virtual ModelConfig with(std::string_view, int64_t) const = 0;
    virtual std::shared_ptr<Model> make(DType, Stream&, int64_t, const LoraConfig&) const = 0;
    virtual bool equals(const Any&) const = 0;
  };

  template <class Config>
  struct Held final : Any {
    Config config;
    explicit Held(Config c) : config(std::move(c)) {}
    ModelShape shape() const override { return config.shape(); }
    int64_t parameter_count() const override { return config.parameter_count(); }
    void validate() const override { config.validate(); }
    std::string family() const override { return config.family(); }
    TrainingDefaults defaults() const override { return config.defaults(); }
    void write(nlohmann::json& to) const override { config.write(to); }
    ModelConfig with(std::string_view setting, int64_t n) const override {
      return config.with(setting, n);
    }
    std::shared_ptr<Model> make(DType type, Stream& stream, int64_t longest_row,
                                const LoraConfig& lora) const override {
      return config.make(type, stream, longest_row, lora);
    }
    bool equals(const Any& other) const override {
      const auto* same = dynamic_cast<const Held*>(&other);
      return same && same->config == config;
    }
  };

  std::shared_ptr<const Any> held_;
  std::shared_ptr<const nlohmann::json> source_;
  LoraConfig lora_;
};

// A named model, to be trained from random weights.
struct ModelPreset {
  std::string_view name;
  ModelConfig config;
  TrainingDefaults defaults = {};
};

}  // namespace spool
