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
  const double number = value.is_number() ? value.get<double>() : 76;
  json item;
  if (s.form == TextForm::flag) item = value != json(true);
  if (s.form == TextForm::text) item = s.key == std::string("model") ? "gpt2-124m" : "/another";
  if (s.form == TextForm::real) item = number / 2 + 0.25;
  if (s.form == TextForm::whole || s.form == TextForm::natural) item = int64_t(number) + 1;
  return s.is_list ? json::array({item}) : item;
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
  EXPECT_GT(changed, 0);
  EXPECT_GT(kept, changed);
  EXPECT_FALSE(goes_on(run_setting("steps"), 999));
  for (const Setting& s : run_settings()) {
    const bool is_without = is_stored(s.kind) && !has_numbers(s.kind);
    EXPECT_EQ(settings_without_numbers().contains(s.key), is_without) << s.key;
  }
  EXPECT_TRUE(settings_without_numbers().contains("data"));
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

TEST(Settings, SayTheValueThatTheyHave) {
  const RunOptions own = run_options({});
  for (const Setting& s : run_settings()) {
    RunOptions o = own;
    s.from_json(o, JsonField(s.to_json(own), s.key));
    EXPECT_EQ(s.to_json(o), s.to_json(own)) << s.key;
  }
  const std::array<std::string, 3> said[] = {
      {"memory", "2MiB", "2097152"},
      {"host-memory", "0", "0"},
      {"host-memory", "1KiB", "1024"},
      {"recompute", "gelu,norms", "norms,gelu"},
      {"recompute", "none", "none"},
      {"offload-to", "disk:/tmp", "disk:/tmp"},
      {"offload-to", "host", "host"},
      {"final-eval", "none", "none"},
      {"final-eval", "all", "all"},
      {"final-eval", "3", "3"},
      {"data-seed", "18446744073709551615", "18446744073709551615"}};
  for (const auto& [key, text, value] : said) {
    RunOptions o = options_with(key.c_str(), text);
    const Setting& s = run_setting(key);
    EXPECT_EQ(s.text(o), value);
    const json stored = s.to_json(o);
    s.from_json(o, JsonField(s.to_json(own), s.key));
    EXPECT_EQ(s.text(o), s.text(own)) << key;
    s.from_json(o, JsonField(stored, s.key));
    EXPECT_EQ(s.text(o), value);
  }
}

template <class T>
void expect_kept(const std::vector<std::string>& texts, const T& value, TextForm form) {
  const auto held = std::make_shared<T>();
  const SettingAccess<T> access{[=](const RunOptions&) { return *held; },
                                [=](RunOptions&, const T& v) { *held = v; }};
  const Setting s("made-up", access, "Help", any_value, SettingKind::numbers, in_help);
  RunOptions o;
  const json none = s.to_json(o);
  s.read(o, texts);
  EXPECT_EQ(*held, value);
  EXPECT_EQ(s.form, form);
  const json kept = s.to_json(o);
  s.from_json(o, JsonField(none, "run.json"));
  EXPECT_EQ(*held, T());
  s.from_json(o, JsonField(kept, "run.json"));
  EXPECT_EQ(*held, value);
}

TEST(Settings, MayBeOfAnyUsualType) {
  expect_kept<std::optional<int64_t>>({"-3"}, -3, TextForm::whole);
  expect_kept<std::optional<size_t>>({"0"}, 0, TextForm::natural);
  expect_kept<std::optional<double>>({"0.25"}, 0.25, TextForm::real);
  expect_kept<std::optional<bool>>({"false"}, false, TextForm::flag);
  expect_kept<std::optional<std::string>>({"a"}, "a", TextForm::text);
  expect_kept<std::optional<DType>>({"bf16"}, DType::bf16, TextForm::text);
  expect_kept<std::filesystem::path>({"a/b"}, "a/b", TextForm::text);
  expect_kept<std::vector<int64_t>>({"1", "-2"}, {1, -2}, TextForm::whole);
  expect_kept<std::vector<double>>({"1", "0.5"}, {1, 0.5}, TextForm::real);
  expect_kept<std::vector<DType>>({"f32", "bf16"}, {DType::f32, DType::bf16}, TextForm::text);
  expect_kept<std::optional<std::vector<int>>>({"7"}, std::vector{7}, TextForm::whole);
  expect_error(ErrorKind::invalid, {"'x' is not a whole number"}, [&] {
    expect_kept<std::vector<int>>({"1", "x"}, {}, TextForm::whole);
  });
}

TEST(Settings, RefuseTextsAndValuesThatAreWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"eval-every", "-1"},   {"keep-checkpoints", "0"}, {"dtype", "f64"}, {"memory", "much"},
      {"recompute", "gelus"}, {"final-eval", "-2"},      {"out", "-"},     {"offload", "some"}};
  for (const auto& given : wrong) {
    const auto fields =
        expect_error(ErrorKind::invalid, {}, [&] { options_with(given.first, given.second); });
    EXPECT_EQ(fields.settings, std::vector<std::string>{given.first});
  }
  expect_error(ErrorKind::invalid, {"'1e3' is not a whole number"},
               [&] { options_with("steps", "1e3"); });
  for (const auto& [key, text] : {std::pair("lr", "abc"), {"lr", "1x"}, {"lr", ""}}) {
    const auto fields = expect_error(ErrorKind::invalid, {text, "is not a number"},
                                     [&, k = key, v = text] { options_with(k, v); });
    EXPECT_EQ(fields.settings, std::vector<std::string>{key});
  }
  expect_error(ErrorKind::invalid, {"'maybe' is neither true nor false"},
               [] { options_with("keep-best", "maybe"); });
  const auto unknown = expect_error(ErrorKind::invalid, {"there is no setting bacth"},
                                    [&] { options_with("bacth", "3"); });
  EXPECT_EQ(unknown.settings, std::vector<std::string>{"bacth"});
  expect_error(ErrorKind::invalid, {"no value for the setting batch"}, [&] {
    run_options({{"batch", {}}});
  });
  RunOptions o = run_options({});
  o.patience = -1;
  const auto fields = expect_error(ErrorKind::invalid, {"must be 0 or more, not -1"},
                                   [&] { check_run_settings(o); });
  EXPECT_EQ(fields.settings, std::vector<std::string>{"patience"});
}

TEST(Settings, ThatContradictEachOtherAreNamedByTheirKeys) {
  const auto refuse = [](const GivenTexts& given, const std::string& words,
                         const std::vector<std::string>& keys) {
    const auto fields = expect_error(ErrorKind::invalid, {words}, [&] { run_options(given); });
    EXPECT_EQ(fields.settings, keys);
  };
  refuse({{"decay-share", {"0.1"}}}, "decay-share is for lr-schedule wsd, not cosine",
         {"decay-share", "lr-schedule"});
  refuse({{"lr-schedule", {"constant"}}, {"min-lr", {"0"}}}, "min-lr has no meaning",
         {"min-lr", "lr-schedule"});
  refuse({{"recompute", {"gelu"}}, {"plan", {"p"}}}, "recompute and plan both say",
         {"recompute", "plan"});
  refuse({{"recompute", {"gelu"}}, {"offload-to", {"disk:d"}}}, "offload-to disk:d needs values",
         {"offload-to", "offload", "recompute"});
  refuse({{"offload-to", {"disk"}}}, "offload-to 'disk' is neither", {"offload-to"});
  refuse({{"batch", {"2"}}, {"tokens-per-step", {"256"}}}, "batch and tokens-per-step both say",
         {"batch", "tokens-per-step"});
  refuse({{"accumulate", {"1"}}, {"tokens-per-step", {"256"}}},
         "give tokens-per-step alone, or batch and accumulate", {"accumulate", "tokens-per-step"});
  refuse({{"plan", {"p"}}, {"tokens-per-step", {"256"}}}, "plan is of one split",
         {"plan", "tokens-per-step"});
  const auto flag = [](const std::string& key) { return "--" + key; };
  expect_error(ErrorKind::invalid, {"--decay-share is for --lr-schedule wsd"}, [&] {
    run_options({{"decay-share", {"0.1"}}}, flag);
  });
  EXPECT_NO_THROW(run_options({{"decay-share", {"0.1"}}, {"resume", {"true"}}}));
}

TEST(Settings, TokensOfAStepAreWholeRows) {
  const auto refuse = [](const char* tokens, const char* row, const std::string& words) {
    expect_error(ErrorKind::invalid, {words}, [&] {
      run_options({{"tokens-per-step", {tokens}}, {"seq", {row}}});
    });
  };
  refuse("1000", "64",
         "tokens-per-step 1000 is no multiple of seq 64; the nearest are 960 and 1024");
  refuse("63", "64", "tokens-per-step 63 is no multiple of seq 64; the nearest is 64");
  refuse("9223372036854775807", "64", "rows of 64 tokens, and may have at most 2147483647");
  refuse("99999999999999999999", "64", "is not a whole number");
  refuse("0", "64", "0 is too little");
  refuse("-64", "64", "-64 is too little");
  refuse("many", "64", "many");
  refuse("64", "0", "the number of tokens of a row is 0");
  const RunOptions o = run_options({{"tokens-per-step", {"1024"}}, {"seq", {"64"}}});
  EXPECT_EQ(o.training.tokens_per_step(), 1024);
}

TEST(Settings, AResumedRunKeepsItsTokensOfAStep) {
  const json own = configuration(run_options({{"batch", {"4"}}, {"seq", {"32"}}}));
  for (const auto& [tokens, goes_on] : {std::pair("128", true), {"256", false}, {"100", false}}) {
    RunOptions o = run_options({{"tokens-per-step", {tokens}}, {"resume", {"true"}}});
    const auto resume = [&] { adopt(o, stored(own)); };
    if (goes_on) {
      EXPECT_NO_THROW(resume());
    } else {
      expect_error(ErrorKind::invalid,
                   {"cannot be resumed with tokens-per-step", "keeps its 128", "4 rows of 32"},
                   resume);
    }
    EXPECT_EQ(o.training.batch, 4);
  }
}

}  // namespace
}  // namespace spool::testing
