#include "spool/models/training/settings/setting.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace spool {
namespace {

nlohmann::json value_of(const std::vector<std::string>& texts, TextForm form) {
  const std::string& text = texts.back();
  if (form == TextForm::list) return texts;
  if (form == TextForm::text) return text;
  if (form == TextForm::flag) return text == "true";
  if (form == TextForm::real) return static_cast<double>(std::strtold(text.c_str(), nullptr));
  const nlohmann::json number = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(number.is_number_integer(), "'", text, "' is not a whole number");
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
  for (std::string& given : texts) {
    const std::string fault = text_check.fault ? text_check.fault(given) : std::string();
    check_setting(fault.empty(), {key}, fault);
    if (text_check.taken) given = text_check.taken(given);
  }
  from_json(o, JsonField(value_of(texts, form), key));
}

nlohmann::json Setting::to_json(const RunOptions& o) const {
  nlohmann::json value;
  write_(o, value);
  return value;
}

std::string Setting::text(const RunOptions& o) const {
  const nlohmann::json value = to_json(o);
  if (value.is_number_float()) return sentence(value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void Setting::check(const RunOptions& o) const {
  const std::string fault = fault_(o);
  check_setting(fault.empty(), {key}, fault);
}

const Settings& run_settings() {
  static const Settings all = [] {
    Settings flat;
    using namespace settings;
    for (const Settings& table :
         {model_table, data_table, tokenizer_table, step_table, policy_table, machine_table,
          output_table, checkpoint_table, evaluation_table, sample_table}) {
      flat.insert(flat.end(), table.begin(), table.end());
    }
    return flat;
  }();
  return all;
}

const Setting& run_setting(std::string_view key) {
  const auto found = std::ranges::find(run_settings(), key, &Setting::key);
  if (found == run_settings().end()) throw std::out_of_range("a setting that there is not");
  return *found;
}

}  // namespace spool
