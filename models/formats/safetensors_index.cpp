// Reads the JSON index of a model in several files.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/formats/constant_tensors.h"
#include "spool/models/formats/safetensors.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// The names of the tensors of each shard.
using Shards = std::map<std::string, std::set<std::string, std::less<>>>;

// "./NAME" -> "NAME".
std::string without_dots(std::string path) {
  while (path.starts_with("./")) path.erase(0, 2);
  return path;
}

Shards read_weight_map(const JsonField& index) {
  Shards shards;
  const JsonField map = index.member("weight_map");
  for (const JsonField& entry : map.members()) {
    const std::string shard = without_dots(entry.string());
    const bool in_folder = !shard.empty() && shard.find('/') == std::string::npos &&
                           shard.find('\0') == std::string::npos && shard != "." && shard != "..";
    entry.expect(in_folder, excerpt(entry.value()), " is no name of a file in the index's folder");
    shards[shard].insert(entry.key());
  }
  map.expect(!shards.empty(), "names no tensor");
  return shards;
}

TensorFileStart open_shard(const fs::path& index, const std::string& shard,
                           const std::set<std::string, std::less<>>& listed) {
  const fs::path file = index.parent_path() / shard;
  check_file(path_exists(file), file, "is missing; ", index.filename().string(),
             " lists it as a part of the model: copy it there, too");
  TensorFileStart start = open_safetensors(file);
  for (const StoredTensor& t : start.tensors) {
    check_file(listed.contains(t.name) || is_constant_tensor(t.name), file, "tensor \"", t.name,
               "\" is not listed as its own in ", index.filename().string());
  }
  const auto has = [&](const std::string& name) {
    return std::ranges::find(start.tensors, name, &StoredTensor::name) != start.tensors.end();
  };
  const auto missing = std::ranges::find_if(
      listed, [&](const std::string& name) { return !has(name) && !is_constant_tensor(name); });
  check_file(missing == listed.end(), file, "lacks tensor \"",
             missing == listed.end() ? "" : *missing, "\", which ", index.filename().string(),
             " says it has");
  return start;
}

std::vector<TensorFileStart> open_shards_of(const fs::path& index) {
  std::vector<TensorFileStart> files;
  for (const auto& [shard, listed] : read_weight_map(read_json(index))) {
    files.push_back(open_shard(index, shard, listed));
  }
  return files;
}

}  // namespace

ShardedSafetensorsReader::ShardedSafetensorsReader(const fs::path& index)
    : TensorReader(index.string(), open_shards_of(index)) {}

}  // namespace spool
