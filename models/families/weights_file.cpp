#include "spool/models/families/weights_file.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/families/adapter_file.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/formats/tensor_file.h"
#include "spool/runtime/files/file_kind.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The folder's entries, sorted; empty if it does not exist or cannot be read.
std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    paths.push_back(at->path());
  }
  std::ranges::sort(paths);
  return paths;
}

std::string name_of(const fs::path& path) { return path.filename().string(); }

// Huggingface_hub's layout of a model: models--OWNER--NAME/{blobs,refs,snapshots/REVISION}.
bool is_cache_of_model(const fs::path& folder) {
  std::error_code none;
  return fs::is_directory(folder / "snapshots", none) && fs::is_directory(folder / "blobs", none);
}

// The snapshot that `main` names, or else the last one; empty if there is none.
fs::path snapshot_in(const fs::path& cache) {
  constexpr uint64_t max_bytes = 1024;
  std::error_code none;
  if (fs::is_regular_file(cache / "refs" / "main", none)) {
    std::string revision = read_text_file(cache / "refs" / "main", max_bytes);
    revision.erase(revision.find_last_not_of(" \r\n") + 1);
    const fs::path snapshot = cache / "snapshots" / revision;
    if (!revision.empty() && fs::is_directory(snapshot, none)) return snapshot;
  }
  const std::vector<fs::path> all = paths_in(cache / "snapshots");
  return all.empty() ? fs::path() : all.back();
}

void refuse_cache(const fs::path& folder) {
  const bool of_model = is_cache_of_model(folder);
  const std::vector<fs::path> inside = paths_in(folder);
  const auto found = std::ranges::find_if(inside, is_cache_of_model);
  if (!of_model && found == inside.end()) return;
  const fs::path snapshot = snapshot_in(of_model ? folder : *found);
  check_file(!snapshot.empty(), folder,
             "is a cache of the hub, and has no snapshot of the model; download the model again");
  check_file(/*ok=*/false, folder,
             "is a cache of the hub, which keeps models in folders below it; "
             "give the folder of a snapshot, ",
             snapshot.string());
}

// An adapter is a model only with its settings, and never the base of another.
void refuse_adapter(const fs::path& folder) {
  check_file(!path_exists(folder / adapter_config_name), folder, "has an adapter (",
             adapter_config_name,
             "), not the model that another one changes; convert it to a model first");
  for (const char* name : {adapter_weights_name, "adapter_model.bin"}) {
    check_file(!path_exists(folder / name), folder, "has an adapter (", name, ") without its ",
               adapter_config_name, ", and no model; copy that there, too");
  }
}

void refuse_partial_downloads(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / ".cache" / "huggingface" / "download"}) {
    for (const fs::path& path : paths_in(place)) {
      check_file(!is_partial_download(path), folder, "has ", name_of(path),
                 " in place of its weights, a part of a download that has not come to its end; "
                 "download the model again");
    }
  }
}

// Whether a trainer writes this file beside a model.
bool is_state_of_training(std::string_view name) {
  constexpr std::array beginnings = {"optimizer", "scheduler", "scaler", "rng_state",
                                     "training_args"};
  return std::ranges::any_of(beginnings, [&](const char* b) { return name.starts_with(b); });
}

void refuse_other_forms(const fs::path& folder) {
  for (const fs::path& path : paths_in(folder)) {
    const std::string name = name_of(path), extension = path.extension().string();
    if (is_state_of_training(name)) continue;
    const bool of_torch = name.starts_with("pytorch_model") || extension == ".pth" ||
                          extension == ".pt" || extension == ".ckpt";
    check_file(!of_torch, folder, "its model is a file of PyTorch, ", name,
               "; save it again with save_pretrained(safe_serialization=True)");
    const char* form = extension == ".gguf"      ? "GGUF, the format of llama.cpp"
                       : extension == ".h5"      ? "HDF5, for TensorFlow"
                       : extension == ".msgpack" ? "msgpack, for Flax"
                       : extension == ".onnx"    ? "ONNX"
                                                 : nullptr;
    check_file(!form, folder, "its model, ", name, ", is in ", form ? form : "",
               "; get it in the form of transformers, with its weights in safetensors");
    if (extension != ".safetensors") continue;
    check_file(name.find("-of-") == std::string::npos, folder, "has shards of a model, such as ",
               name, ", without their index ", weights_index_name, "; copy it there, too");
    check_file(/*ok=*/false, folder, "its weights are not named ", weights_name,
               "; give the file of the weights itself, as in ", path.string());
  }
}

}  // namespace

fs::path folder_of_model(const fs::path& model) {
  check_file(path_exists(model), model, "there is no such file or directory");
  if (const auto checkpoint = checkpoint_named_by(model)) return *checkpoint;
  if (!path_is_directory(model)) return model.parent_path();
  return latest_checkpoint(model).value_or(model);
}

void check_is_no_adapter(const fs::path& weights) {
  check_file(weights.filename() != adapter_weights_name, weights,
             "is an adapter, not the model; give its folder, which has its ", adapter_config_name,
             ", too");
}

bool has_weights_in(const fs::path& folder) {
  return path_exists(folder / weights_name) || path_exists(folder / weights_index_name);
}

void check_is_folder_of_model(const fs::path& folder) {
  refuse_cache(folder);
  if (!has_weights_in(folder)) refuse_adapter(folder);
}

fs::path weights_in(const fs::path& folder) {
  for (const char* name : {weights_name, weights_index_name}) {
    if (path_exists(folder / name)) return folder / name;
  }
  check_is_folder_of_model(folder);
  refuse_partial_downloads(folder);
  refuse_other_forms(folder);
  check_file(/*ok=*/false, folder,
             "has neither model.safetensors, nor its index, nor a link `latest` to a checkpoint");
  return {};
}

}  // namespace spool
