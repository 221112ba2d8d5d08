#pragma once

// A setting of a training run, declared once: its key, the member of RunOptions that holds it, its
// help, the check of its values, what it decides, and its default.  A declaration that lacks one
// does not compile.  The command line, the JSON of a stored run, what may change when a run
// resumes, help, and the table of defaults by model come from it (docs/adding-a-setting.md).
//
// A setting names no flag: help says another setting as {lr}, and so does an error that begins with
// a key in braces; run_options() makes lr of it for a program, and --lr for a command line.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "spool/models/families/families.h"
#include "spool/models/training/run_options.h"
#include "spool/planner/plan_json.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/names.h"

namespace spool {

// What a setting decides, and so where it is stored and whether a run that resumes may change it.
enum class SettingKind : uint8_t {
  shape,       // a number of the model, stored with the others of its configuration
  numbers,     // the numbers of a step; a run keeps it
  length,      // a number of steps: a run that resumes may become longer
  source,      // how model and data are read, whose fingerprints are stored, too; a run keeps it
  place,       // where data lies; it may change
  evaluation,  // evaluations and what follows from them; it may change
  execution    // where and how the run executes; it is not stored
};
bool is_stored(SettingKind);
bool has_numbers(SettingKind);
bool may_change(SettingKind);

// Where help says the default: beside the name, as a value; in the sentence of the setting, which
// says nothing of it where that is plain; or in the table of defaults that depend on the model.
enum class DefaultShown : uint8_t { as_value, in_help, by_model };
inline constexpr DefaultShown as_value = DefaultShown::as_value, in_help = DefaultShown::in_help;

// The value that RunOptions begins with, or one that is computed from what is declared before.
template <class T>
struct SettingDefault {
  SettingDefault(DefaultShown where, std::function<T(const RunOptions&)> f = {})
      : shown(where), compute(std::move(f)) {}
  DefaultShown shown;
  std::function<T(const RunOptions&)> compute;
};
template <class T>
SettingDefault<T> of_model(T TrainingDefaults::*member) {
  return {DefaultShown::by_model,
          [=](const RunOptions& o) { return training_defaults(o).*member; }};
}
template <class T>
SettingDefault<T> computed(T (*compute)(const RunOptions&)) {
  return {in_help, compute};
}

// What is given for a setting on a command line, and what help calls it.
enum class TextForm : uint8_t { none, flag, whole, natural, real, text };
template <>
inline constexpr std::array enumerator_names<TextForm>{"", "", "INT", "UINT", "FLOAT", "TEXT"};

// A check of a text that is given.
struct TextCheck {
  // Says what is wrong, or nothing; may replace the text by another word for the same.
  std::function<std::string(std::string&)> fault = {};
  std::string words = {};  // those that there are, for help
  // What a run takes for a text without fault; null: the text.
  std::function<std::string(const std::string&)> taken = {};
};

// Checks of a text that is given, and of a value from wherever it comes, which says what is wrong,
// or nothing.
struct AnyValue {};
inline constexpr AnyValue any_value;
template <class T>
struct SettingCheck {
  using Fault = std::function<std::string(const T&)>;
  SettingCheck(AnyValue) {}
  SettingCheck(TextCheck t, Fault f = {}) : text(std::move(t)), fault(std::move(f)) {}
  SettingCheck(Fault f) : fault(std::move(f)) {}
  TextCheck text;
  Fault fault;
};

// How the value is read and written, if it is not a member.
template <class T>
struct SettingAccess {
  std::function<T(const RunOptions&)> get;
  std::function<void(RunOptions&, const T&)> set;
};

class Setting {
 public:
  template <class T>
  Setting(const char* key, SettingAccess<T>, std::string help,
          std::type_identity_t<SettingCheck<T>>, SettingKind,
          std::type_identity_t<SettingDefault<T>>);
  template <class Owner, class T>
  Setting(const char* name, T Owner::*member, std::string words,
          std::type_identity_t<SettingCheck<T>> of_values, SettingKind decides,
          std::type_identity_t<SettingDefault<T>> otherwise)
      : Setting(name, access_to(member), std::move(words), std::move(of_values), decides,
                std::move(otherwise)) {}

  // Takes the last of the texts, or all, if the setting is a list.  Throws if one cannot be, or
  // there is none.
  void read(RunOptions&, std::vector<std::string> texts) const;
  // The value as a checkpoint stores it, and as a text: empty if there is none.
  nlohmann::json to_json(const RunOptions&) const;
  std::string text(const RunOptions&) const;
  // Throws unless the value is one that the setting may have.
  void check(const RunOptions&) const;

  const char* key;
  std::string help;
  TextCheck text_check;
  SettingKind kind;
  DefaultShown shown;
  TextForm form;  // of a list: of each item
  bool is_list;
  // Takes what a checkpoint stored.
  std::function<void(RunOptions&, const JsonField& stored)> from_json;
  // Takes the default.
  std::function<void(RunOptions&)> reset;

 private:
  // The structs that have the members.
  template <class Options>
  static auto parts(Options& o) {
    auto& t = o.training;
    return std::tie(o, t, t.optimizer, t.chunks, o.tokenizer, o.policy);
  }
  template <class Owner, class T>
  static SettingAccess<T> access_to(T Owner::*member) {
    return {[=](const RunOptions& o) { return std::get<const Owner&>(parts(o)).*member; },
            [=](RunOptions& o, const T& value) { std::get<Owner&>(parts(o)).*member = value; }};
  }

  std::function<void(const RunOptions&, nlohmann::json&)> write_;
  std::function<std::string(const RunOptions&)> fault_;
};

// Where settings are declared, in the order in which a command lists them; a command may take some
// of these tables.
using Settings = std::vector<Setting>;
namespace settings {
using enum SettingKind;
extern const Settings rank_table, model_table, adapter_table, data_table, tokenizer_table,
    step_table, policy_table, machine_table, output_table, checkpoint_table, evaluation_table,
    sample_table;
}  // namespace settings

// All of them.  The tables are made before main() begins, in an order of the linker: no static
// initialiser may call this, or what finds a setting.
const std::vector<std::reference_wrapper<const Setting>>& run_settings();
// Null if there is none.
const Setting* find_setting(std::string_view key);
// Throws std::out_of_range if there is none.
const Setting& run_setting(std::string_view key);

// The text with what name_of() says for each {key} of a setting.
std::string with_names(std::string text, NameOfKey name_of);

// What a text of a value is, and how the value is stored.
template <class T>
struct SettingType {
  static constexpr bool is_list = false, is_text = std::is_convertible_v<T, std::string>;
  static constexpr TextForm form = std::is_same_v<T, bool>       ? TextForm::flag
                                   : std::is_floating_point_v<T> ? TextForm::real
                                   : std::is_unsigned_v<T>       ? TextForm::natural
                                   : std::is_integral_v<T>       ? TextForm::whole
                                   : is_text || NamedEnum<T>     ? TextForm::text
                                                                 : TextForm::none;
  static void write(const T& value, auto& to) {
    if constexpr (NamedEnum<T>) to = name(value);
    if constexpr (form == TextForm::none) to = value.to_json();
    if constexpr (form != TextForm::none && !NamedEnum<T>) to = value;
  }
  static T read(const JsonField& stored) {
    if constexpr (NamedEnum<T>) return stored.enumerator<T>();
    if constexpr (form == TextForm::flag) return stored.boolean();
    if constexpr (form == TextForm::real) return static_cast<T>(stored.number());
    if constexpr (form == TextForm::none) return model_config(stored);
    if constexpr (is_text) return stored.string();
    if constexpr (std::is_integral_v<T> && form != TextForm::flag) return stored.integer<T>();
  }
};
template <class T>
struct SettingType<std::optional<T>> : SettingType<T> {
  static void write(const std::optional<T>& value, auto& to) {
    if (value) SettingType<T>::write(*value, to);
  }
  static std::optional<T> read(const JsonField& stored) {
    return stored.is_null() ? std::optional<T>() : SettingType<T>::read(stored);
  }
};
template <class T>
struct SettingType<std::vector<T>> : SettingType<T> {
  static constexpr bool is_list = true;
  static void write(const std::vector<T>& values, auto& to) {
    to = to.array();
    for (const T& value : values) SettingType<T>::write(value, to.emplace_back());
  }
  static std::vector<T> read(const JsonField& stored) {
    std::vector<T> all;
    for (const JsonField& item : stored.items()) all.push_back(SettingType<T>::read(item));
    return all;
  }
};
template <>
struct SettingType<std::vector<NodesInChunks>> : SettingType<NodesInChunks> {
  static void write(const auto& nodes, auto& to) { to = to_json(nodes); }
  static auto read(const JsonField& stored) { return nodes_in_chunks_from_json(stored); }
};

template <class T>
Setting::Setting(const char* name, SettingAccess<T> value, std::string words,
                 std::type_identity_t<SettingCheck<T>> of_values, SettingKind decides,
                 std::type_identity_t<SettingDefault<T>> otherwise)
    : key(name),
      help(std::move(words)),
      text_check(std::move(of_values.text)),
      kind(decides),
      shown(otherwise.shown),
      form(SettingType<T>::form),
      is_list(SettingType<T>::is_list),
      from_json([=](RunOptions& o, const JsonField& f) { value.set(o, SettingType<T>::read(f)); }),
      reset([=](RunOptions& o) {
        if (otherwise.compute) value.set(o, otherwise.compute(o));
      }),
      write_([=](const RunOptions& o, nlohmann::json& to) {
        SettingType<T>::write(value.get(o), to);
      }),
      fault_([=, fault = std::move(of_values.fault)](const RunOptions& o) {
        return fault ? fault(value.get(o)) : std::string();
      }) {}

}  // namespace spool
