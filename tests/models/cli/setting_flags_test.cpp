#include "spool/models/cli/setting_flags.h"

#include <nlohmann/json.hpp>

#include "tests/runtime/testing.h"

namespace spool {
namespace {

// A boolean that is true by default.
Setting on_by_default(SettingKind kind) {
  return {"separate", &RunOptions::separate, "Help", any_value, kind, in_help};
}

// What a command line with this setting says of it.
std::vector<std::string> said(const Setting& s, const std::string& words) {
  CLI::App app;
  const CLI::Option* const option = add_setting(app, s);
  app.parse(words);
  return option->results();
}

TEST(SettingFlags, TurnOffWhatIsOnByDefault) {
  const Setting s = on_by_default(SettingKind::source);
  EXPECT_EQ(said(s, "--no-separate"), std::vector<std::string>{"false"});
  EXPECT_THROW(said(s, "--separate"), CLI::ExtrasError);
  EXPECT_EQ(flag_of("separate"), "--no-separate");
  EXPECT_EQ(flag_of("keep-best"), "--keep-best");
  EXPECT_EQ(flag_of("machine"), "--machine");
}

TEST(SettingFlags, SayBothOfWhatARunThatResumesMayChange) {
  const Setting s = on_by_default(SettingKind::evaluation);
  EXPECT_EQ(said(s, "--no-separate"), std::vector<std::string>{"false"});
  EXPECT_EQ(said(s, "--separate"), std::vector<std::string>{"true"});
  EXPECT_EQ(said(run_setting("keep-best"), "--no-keep-best"), std::vector<std::string>{"false"});
}

}  // namespace
}  // namespace spool
