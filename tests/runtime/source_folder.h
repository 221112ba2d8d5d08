#pragma once

// The repository's folder, as it was when the tests were compiled.

#include <filesystem>

namespace spool::testing {

std::filesystem::path source_folder();

}  // namespace spool::testing
