#pragma once

// JSON from outside: whatever is wrong with it is a sentence that names the file.  Nesting is
// limited, so that a small file cannot ask for much memory, and a key may be there only once.

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace spool {

inline constexpr int max_json_depth = 16;

// `file` is for the sentences.
nlohmann::json parse_json(std::string_view text, const std::string& file,
                          int max_depth = max_json_depth);

// Throws if the file is missing, larger than 100 MB, or not JSON.
nlohmann::json read_json(const std::filesystem::path&);

}  // namespace spool
