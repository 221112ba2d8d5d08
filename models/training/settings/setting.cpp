#include "spool/models/training/settings/setting.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace spool {
namespace {

nlohmann::json value_of(const std::string& text, TextForm form, const char* key) {
  const auto expect = [&](bool is_right, const char* what) {
    check_setting(is_right, {key}, "'", text, "' is ", what);
  };
  if (form == TextForm::text) return text;
  if (form == TextForm::flag) {
    expect(text == "true" || text == "false", "neither true nor false");
    return text == "true";
  }
  if (form == TextForm::real) {
    char* end = nullptr;
    const long double number = std::strtold(text.c_str(), &end);
    expect(!text.empty() && *end == '\0', "not a number");
    return static_cast<double>(number);
  }
  const nlohmann::json number = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  expect(number.is_number_integer(), "not a whole number");
  return number;
}

}  // namespace

bool is_stored(SettingKind kind) {
  return kind != SettingKind::shape && kind != SettingKind::execution;
}
bool has_numbers(SettingKind kind) {
  return kind == SettingKind::numbers || kind == SettingKind::length;
}
bool may_change(SettingKind kind) {
  return kind == SettingKind::place || kind == SettingKind::evaluation;
}

void Setting::read(RunOptions& o, std::vector<std::string> texts) const {
  check_setting(!texts.empty(), {key}, "there is no value for the setting ", key);
  nlohmann::json values;
  for (std::string& given : texts) {
    const std::string fault = text_check.fault ? text_check.fault(given) : std::string();
    check_setting(fault.empty(), {key}, fault);
    values.push_back(value_of(text_check.taken ? text_check.taken(given) : given, form, key));
  }
  from_json(o, JsonField(is_list ? values : values.back(), key));
}

nlohmann::json Setting::to_json(const RunOptions& o) const {
  nlohmann::json value;
  write_(o, value);
  return value;
}

std::string Setting::text(const RunOptions& o) const {
  const nlohmann::json value = to_json(o);
  if (value.is_number_float()) return sentence(value.get<double>());
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void Setting::check(const RunOptions& o) const {
  const std::string fault = fault_(o);
  check_setting(fault.empty(), {key}, fault);
}

const std::vector<std::reference_wrapper<const Setting>>& run_settings() {
  static const auto all = [] {
    std::vector<std::reference_wrapper<const Setting>> flat;
    using namespace settings;
    for (const Settings* table :
         {&rank_table, &model_table, &adapter_table, &data_table, &tokenizer_table, &step_table,
          &policy_table, &machine_table, &output_table, &checkpoint_table, &evaluation_table,
          &sample_table}) {
      flat.insert(flat.end(), table->begin(), table->end());
    }
    return flat;
  }();
  return all;
}

const Setting* find_setting(std::string_view key) {
  const auto found = std::ranges::find(run_settings(), key, &Setting::key);
  return found == run_settings().end() ? nullptr : &found->get();
}

const Setting& run_setting(std::string_view key) {
  if (const Setting* const found = find_setting(key)) return *found;
  throw std::out_of_range("a setting that there is not");
}

std::string with_names(std::string text, NameOfKey name_of) {
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    const size_t end = std::min(text.find('}', at), text.size());
    const std::string key = text.substr(at + 1, end - at - 1);
    if (find_setting(key)) text.replace(at, end + 1 - at, name_of(key));
  }
  return text;
}

}  // namespace spool
