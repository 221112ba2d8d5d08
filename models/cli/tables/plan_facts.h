#pragma once

// What a plan file says, for people.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace spool {

// Names and their values: "foretold peak", "6495928320 bytes".  Throws if the file is no plan.
std::vector<std::pair<std::string, std::string>> plan_facts(const std::filesystem::path&);

}  // namespace spool
