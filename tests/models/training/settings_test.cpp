#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/training/settings/setting.h"
#include "spool/models/training/settings/setting_checks.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

// A declaration lacks nothing.
using Member = double TrainingConfig::*;
static_assert(std::is_constructible_v<Setting, const char*, Member, const char*, AnyValue,
                                      SettingKind, DefaultShown>);
static_assert(!std::is_constructible_v<Setting, const char*, Member, AnyValue, SettingKind,
                                       DefaultShown>);  // no help
static_assert(!std::is_constructible_v<Setting, const char*, Member, const char*, SettingKind,
                                       DefaultShown>);  // no check
static_assert(!std::is_constructible_v<Setting, const char*, Member, const char*, AnyValue,
                                       DefaultShown>);  // no kind
static_assert(!std::is_constructible_v<Setting, const char*, Member, const char*, AnyValue,
                                       SettingKind>);  // no default

RunOptions options_with(const char* key, const std::string& text) {
  return run_options({{key, {text}}});
}

JsonField stored(const json& settings) { return {settings, "run.json"}; }

// Another value of a setting, of which there is at least one.
json another(const Setting& s, const RunOptions& o) {
  const json value = s.to_json(o);
  switch (s.form) {
    case TextForm::flag:
      return !value.get<bool>();
    case TextForm::list:
      return json{"/another"};
    case TextForm::text:
      return s.key == std::string("model") ? "gpt2-124m" : "another";
    case TextForm::real:
      return value.get<double>() / 2 + 0.25;
    default:
      return value.is_null() ? json(77) : json(value.get<int64_t>() + 1);
  }
}

// Whether a run goes on with another value of a setting, which is given, than its own.
bool goes_on(const Setting& s, const json& value) {
  const json own = configuration(run_options({}));
  RunOptions o = run_options({});
  s.from_json(o, JsonField(value, "given"));
  const json ours = s.to_json(o);
  o.given = {s.key};
  try {
    adopt(o, stored(own));
  } catch (const Error& e) {
    const std::vector<std::string> settings = e.fields().settings;
    EXPECT_EQ(settings.front(), s.key);
    return false;
  }
  EXPECT_EQ(s.to_json(o), ours) << s.key;
  return true;
}

bool has_another(const Setting& s) {
  const bool is_enum = s.form == TextForm::text && !s.text_check.words.empty();
  return is_stored(s.kind) && s.form != TextForm::none && !is_enum;
}

TEST(Settings, HaveKeysOfTheirOwnAndHelp) {
  std::set<std::string> keys;
  for (const Setting& s : run_settings()) {
    EXPECT_TRUE(keys.insert(s.key).second) << s.key;
    EXPECT_FALSE(s.help.empty()) << s.key;
    EXPECT_EQ(&run_setting(s.key), &s);
  }
  EXPECT_GT(keys.size(), 60u);
  EXPECT_THROW(run_setting("learning-rate"), std::out_of_range);
}

TEST(Settings, NameOthersByKeysInBracesAndNoFlags) {
  for (const Setting& s : run_settings()) {
    EXPECT_EQ(s.help.find("--"), std::string::npos) << s.key;
    for (size_t at = s.help.find('{'); at != std::string::npos; at = s.help.find('{', at + 1)) {
      const std::string key = s.help.substr(at + 1, s.help.find('}', at) - at - 1);
      EXPECT_NO_THROW(run_setting(key)) << s.key << " names " << key;
    }
  }
}

TEST(Settings, AreStoredAndComeBack) {
  const RunOptions o = run_options({{"model", {"llama-tiny"}},
                                    {"layers", {"3"}},
                                    {"batch", {"3"}},
                                    {"lr", {"0.00123"}},
                                    {"lr-schedule", {"wsd"}},
                                    {"decay-share", {"0.3"}},
                                    {"dropout", {"0.1"}},
                                    {"data", {"/a", "/b"}},
                                    {"separate", {"false"}},
                                    {"data-seed", {"18446744073709551615"}},
                                    {"keep-best", {"true"}}});
  const json settings = configuration(o);
  RunOptions other = run_options({});
  other.given.clear();
  adopt(other, stored(settings));
  EXPECT_EQ(configuration(other), settings);
  EXPECT_EQ(settings["data"], (json{"/a", "/b"}));
  EXPECT_EQ(settings["data-seed"], 18446744073709551615u);
  for (const Setting& s : run_settings()) EXPECT_EQ(settings.contains(s.key), is_stored(s.kind));
}

TEST(Settings, KindsDecideWhatMayChange) {
  int changed = 0, kept = 0;
  const RunOptions own = run_options({});
  for (const Setting& s : run_settings()) {
    if (!has_another(s)) continue;
    const bool may = may_change(s.kind) || s.kind == SettingKind::length;
    EXPECT_EQ(goes_on(s, another(s, own)), may) << s.key;
    (may ? changed : kept)++;
  }
  EXPECT_EQ(changed, 7);
  EXPECT_GT(kept, 15);
  EXPECT_FALSE(goes_on(run_setting("steps"), 999));
  EXPECT_EQ(settings_without_numbers(),
            (std::set<std::string>{"data", "data-format", "eval-batches", "eval-every", "keep-best",
                                   "model", "patience", "separate", "val-data"}));
}

TEST(Settings, HaveDefaultsOfTheModelAndOfOthers) {
  const RunOptions o =
      run_options({{"model", {"llama-tiny"}}, {"lr", {"0.5"}}, {"steps", {"200"}}});
  EXPECT_EQ(o.training.batch, 8);
  EXPECT_EQ(o.training.optimizer.beta2, 0.99);
  EXPECT_EQ(o.training.lr, 0.5);
  EXPECT_EQ(o.training.min_lr, 0.05);
  EXPECT_EQ(o.training.warmup, static_cast<int64_t>(training_defaults(o).warmup * 200));
  EXPECT_EQ(options_with("context", "32").training.seq, 32);
  EXPECT_EQ(o.given, (std::set<std::string>{"model", "lr", "steps"}));
  EXPECT_TRUE(contains(table_of_presets(),
                       "\n  gpt2-tiny: {layers} 4 {heads} 4 {channels} 192 "
                       "{context} 128 {vocab} 256 {batch} 8 {lr} 0.003"));
}

TEST(Settings, TakeTextsOfSeveralValues) {
  EXPECT_EQ(options_with("memory", "2MiB").memory, size_t{2} << 20);
  EXPECT_EQ(options_with("host-memory", "0").host_memory, size_t{0});
  EXPECT_TRUE(options_with("recompute", "gelu").policy.activations);
  EXPECT_EQ(options_with("offload-to", "disk:/tmp").spill_directory, "/tmp");
  EXPECT_EQ(options_with("final-eval", "none").final_eval_batches, 0);
  EXPECT_FALSE(options_with("final-eval", "all").final_eval_batches.has_value());
  EXPECT_EQ(options_with("log", "-").log, "/dev/stdout");
}

TEST(Settings, RefuseTextsAndValuesThatAreWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"eval-every", "-1"},   {"keep-checkpoints", "0"}, {"dtype", "f64"}, {"memory", "much"},
      {"recompute", "gelus"}, {"final-eval", "-2"},      {"out", "-"},     {"offload", "some"}};
  for (const auto& [key, text] : wrong) {
    const auto fields = expect_error(ErrorKind::invalid, {}, [&] { options_with(key, text); });
    EXPECT_EQ(fields.settings, std::vector<std::string>{key});
  }
  expect_error(ErrorKind::invalid, {"'1e3' is not a whole number"},
               [&] { options_with("steps", "1e3"); });
  RunOptions o = run_options({});
  o.patience = -1;
  const auto fields = expect_error(ErrorKind::invalid, {"must be 0 or more, not -1"},
                                   [&] { check_run_settings(o); });
  EXPECT_EQ(fields.settings, std::vector<std::string>{"patience"});
}

TEST(Settings, ThatContradictEachOtherAreNamedByTheirKeys) {
  const auto refuse = [](const GivenTexts& given, const std::string& words) {
    expect_error(ErrorKind::invalid, {words}, [&] { run_options(given); });
  };
  refuse({{"decay-share", {"0.1"}}}, "{decay-share} is for {lr-schedule} wsd, not cosine");
  refuse({{"recompute", {"gelu"}}, {"plan", {"p"}}}, "{recompute} and {plan} both say");
  refuse({{"recompute", {"gelu"}}, {"offload-to", {"disk:d"}}}, "{offload-to} disk:d needs values");
  EXPECT_NO_THROW(run_options({{"decay-share", {"0.1"}}, {"resume", {"true"}}}));
}

}  // namespace
}  // namespace spool::testing
