#include "fuzz.h"
#include "spool/models/formats/safetensors.h"
#include "spool/models/formats/tensor_file.h"

namespace {

std::string shard_with(const std::string& header) {
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(8, 'x');
}

void write_shards() {
  using spool::fuzz::file_in_folder;
  file_in_folder("a", shard_with(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                 R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"));
  file_in_folder("b", shard_with(R"({"z":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"));
  file_in_folder("c", "no shard");
}

}  // namespace

// The index of two shards, a with the tensors x and y, and b with z.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  static const bool written = (write_shards(), true);
  (void)written;
  const auto path = fuzz::file_in_folder(weights_index_name, fuzz::Bytes(data, size));
  fuzz::read([&] {
    const ShardedSafetensorsReader file(path);
    std::byte some[4];
    for (const StoredTensor& t : file.tensors()) file.read(t, 0, some);
  });
  return 0;
}
