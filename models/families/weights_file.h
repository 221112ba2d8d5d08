#pragma once

// Finds the weights in a model's folder, or says what is there instead: an adapter, part of a
// download, another program's format, a hub's cache.

#include <filesystem>

namespace spool {

// The folder that a model's path means: that of a run's latest checkpoint, or of a config.json.
std::filesystem::path folder_of_model(const std::filesystem::path& model);

// The file of the weights in this folder, or their index.  Throws if there is neither.
std::filesystem::path weights_in(const std::filesystem::path& folder);

// Whether there is either, by its name.
bool has_weights_in(const std::filesystem::path& folder);

// Throws if the file is an adapter, by its name.
void check_is_no_adapter(const std::filesystem::path& weights);

// Throws if the folder is a hub's cache, or has an adapter but no model.
void check_is_folder_of_model(const std::filesystem::path& folder);

}  // namespace spool
