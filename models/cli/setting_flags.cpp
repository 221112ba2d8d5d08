#include "spool/models/cli/setting_flags.h"

#include <algorithm>

#include "spool/models/cli/command_line.h"

namespace spool {
namespace {

// A flag of a setting that begins as yes says no.
bool says_no(const Setting& s) {
  return s.form == TextForm::flag && s.text(RunOptions{}) == "true";
}

std::string flag_of(const Setting& s) { return std::string(says_no(s) ? "--no-" : "--") + s.key; }

// The text, with the flag of a setting for its key in braces.
std::string with_flags(std::string text) {
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    const size_t end = std::min(text.find('}', at), text.size());
    const auto key = std::string_view(text).substr(at + 1, end - at - 1);
    const auto known = std::ranges::find(run_settings(), key, &Setting::key);
    if (known != run_settings().end()) text.replace(at, end + 1 - at, flag_of(*known));
  }
  return text;
}

GivenTexts given_texts(const CLI::App& command) {
  GivenTexts given;
  for (const Setting& s : run_settings()) {
    const CLI::Option* const option = command.get_option_no_throw(flag_of(s));
    if (option && option->count() > 0) given[s.key] = option->reduced_results();
  }
  return given;
}

}  // namespace

CLI::Option* describe(CLI::Option* option, const Setting& s) {
  option->description(with_flags(s.help));
  if (s.text_check.fault) option->transform(validator(s.text_check));
  if (s.shown == as_value) option->default_str(s.text(RunOptions{}));
  return option;
}

CLI::Option* add_setting(CLI::App& app, const Setting& s) {
  if (s.form == TextForm::flag) {
    const bool both = may_change(s.kind);  // as a run that resumes may say the other
    const std::string flag = says_no(s) ? "!" + flag_of(s) : flag_of(s);
    return describe(app.add_flag(both ? sentence(flag, ",!--no-", s.key) : flag), s);
  }
  CLI::Option* const option = app.add_option(flag_of(s))->type_name(name(s.form));
  if (s.form == TextForm::list) option->expected(CLI::detail::expected_max_vector_size);
  return describe(option, s);
}

void add_settings(CLI::App& app, std::initializer_list<const Settings*> tables) {
  for (const Settings* table : tables) {
    for (const Setting& s : *table) {
      if (s.form != TextForm::none) add_setting(app, s);
    }
  }
  app.footer(with_flags(table_of_presets()));
}

RunOptions options_of(const CLI::App& command) {
  try {
    return run_options(given_texts(command));
  } catch (const Error& e) {
    const std::string words = e.what();
    throw Error(e.kind(), words.starts_with('{') ? with_flags(words) : words, e.fields());
  }
}

}  // namespace spool
