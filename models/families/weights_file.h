#pragma once

// Finds the weights of a model in a folder, or says what is there in their place: an adapter, with
// its adapter_config.json, which is JSON, a part of a download, another program's form, the cache
// of a hub.

#include <filesystem>

namespace spool {

// The folder that a path of a model names: that of a run's latest checkpoint, or of a config.json.
std::filesystem::path folder_of_model(const std::filesystem::path& model);

// The file of the weights in such a folder, or their index.  Throws if there is neither.
std::filesystem::path weights_in(const std::filesystem::path& folder);

// Throws if the file is an adapter's, by its name.
void check_is_no_adapter(const std::filesystem::path& weights);

// Throws if the folder is a hub's cache, or has an adapter and no model.
void check_is_folder_of_model(const std::filesystem::path& folder);

}  // namespace spool
