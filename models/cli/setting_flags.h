#pragma once

// The settings of a training run (models/training/settings/setting.h) as flags of commands.

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>

#include "spool/models/training/run_options.h"
#include "spool/models/training/settings/setting.h"

namespace spool {

// Adds a flag for each setting of these tables, and to the help of the command the table of
// defaults that depend on the model.
void add_settings(CLI::App&, std::initializer_list<const Settings*>);
// The flag of a key: --graph, or what a setting that is on by default has, --no-graph.
std::string flag_of(const std::string& key);
// Adds the flag of one.
CLI::Option* add_setting(CLI::App&, const Setting&);
// Gives an option that has a variable of its own the help, check and default of a setting.
CLI::Option* describe(CLI::Option*, const Setting&);
template <class T>
CLI::Option* add_setting(CLI::App& app, const char* key, T& variable) {
  return describe(app.add_option(std::string("--") + key, variable), run_setting(key));
}

// What the flags of a command say of settings.
GivenTexts given_texts(const CLI::App&);
// The options of a run that the flags of a command say, all of which are settings or of no run.
// Throws if flags contradict each other.  Ranks that a launcher started, or a machine has, need no
// flag; 0: there are none.
RunOptions options_of(const CLI::App& command, int ranks = 0);

}  // namespace spool
