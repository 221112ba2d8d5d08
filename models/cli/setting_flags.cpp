#include "spool/models/cli/setting_flags.h"

#include "spool/models/cli/command_line.h"

namespace spool {
namespace {

// A flag that can only turn off what is on by default.
bool says_no(const Setting& s) {
  return s.form == TextForm::flag && !may_change(s.kind) && s.text(RunOptions{}) == "true";
}

std::string with_flags(const std::string& text) { return with_names(text, flag_of); }

}  // namespace

GivenTexts given_texts(const CLI::App& command) {
  GivenTexts given;
  for (const Setting& s : run_settings()) {
    const CLI::Option* const option = command.get_option_no_throw(flag_of(s.key));
    if (option && option->count() > 0) given[s.key] = option->reduced_results();
  }
  return given;
}

std::string flag_of(const std::string& key) {
  const Setting* const setting = find_setting(key);
  return (setting && says_no(*setting) ? "--no-" : "--") + key;
}

CLI::Option* describe(CLI::Option* option, const Setting& s) {
  option->description(with_flags(s.help));
  if (s.text_check.fault) option->transform(validator(s.text_check));
  if (s.shown == as_value) option->default_str(s.text(RunOptions{}));
  return option;
}

CLI::Option* add_setting(CLI::App& app, const Setting& s) {
  const std::string flag = sentence("--", s.key), off = sentence("!--no-", s.key);
  if (s.form == TextForm::flag) {
    const bool both = may_change(s.kind);  // as a run that resumes may say the other
    return describe(app.add_flag(both ? flag + "," + off : says_no(s) ? off : flag), s);
  }
  CLI::Option* const option = app.add_option(flag)->type_name(name(s.form));
  if (s.is_list) option->expected(CLI::detail::expected_max_vector_size);
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

RunOptions options_of(const CLI::App& command, int ranks) {
  GivenTexts texts = given_texts(command);
  if (ranks > 0 && !texts.contains("mesh")) {
    texts.try_emplace("ranks", std::vector{std::to_string(ranks)});
  }
  return run_options(texts, flag_of);
}

}  // namespace spool
