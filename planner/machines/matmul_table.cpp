#include "spool/planner/machines/matmul_table.h"

#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>

#include "spool/planner/machines/device_identity.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/log.h"

namespace spool {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int matmul_table_version = 1;
constexpr const char* matmul_table_format = "spool-matmul-algorithms";

MatmulAlgorithms readable_table(const MatmulAlgorithms& of) {
  try {
    return load_matmul_table(cache_folder(), of);
  } catch (const Error& error) {
    logger().warn("{}; matrix products take the first algorithms instead", error.what());
    return {};
  }
}

}  // namespace

json to_json(const MatmulAlgorithms& table) {
  return {{"format", matmul_table_format},
          {"format_version", matmul_table_version},
          {"device", table.device},
          {"cublaslt", table.library},
          {"places", table.places}};
}

MatmulAlgorithms matmul_algorithms_from_json(const JsonField& field) {
  const JsonField format = field.member("format"), version = field.member("format_version");
  format.expect(format.value() == matmul_table_format, excerpt(format.value()), " is not ",
                matmul_table_format);
  version.expect(version.value() == matmul_table_version, excerpt(version.value()),
                 " cannot be read; this program reads ", matmul_table_version);
  MatmulAlgorithms table{.device = field.member("device").string(),
                         .library = field.member("cublaslt").integer<uint64_t>()};
  for (const JsonField& place : field.member("places").members()) {
    table.places[place.key()] = place.integer<int>(0, max_matmul_algorithms - 1);
  }
  return table;
}

fs::path matmul_table_file(const fs::path& folder, const MatmulAlgorithms& of) {
  Hash hash;
  hash.add(of.device);
  hash.add(of.library);
  return folder / fmt::format("matmul-{:016x}.json", hash.state());
}

void save_matmul_table(const fs::path& file, const MatmulAlgorithms& table) {
  write_text_file_atomically(file, to_json(table).dump(1) + "\n");
}

MatmulAlgorithms load_matmul_table(const fs::path& folder, const MatmulAlgorithms& of) {
  if (folder.empty() || of.device.empty()) return {};
  const fs::path file = matmul_table_file(folder, of);
  if (!path_exists(file)) return {};
  MatmulAlgorithms table = matmul_algorithms_from_json(read_json(file));
  check_file(table.is_of_device_of(of), file,
             "is the table of another device or library; delete it");
  return table;
}

MatmulAlgorithms use_tuned_products(Stream& stream, const std::optional<MatmulAlgorithms>& of_run) {
  const MatmulAlgorithms own = matmul_algorithms(stream);
  MatmulAlgorithms table = of_run ? *of_run : readable_table(own);
  if (table.places.empty()) return {};
  if (!table.is_of_device_of(own)) {
    logger().warn(
        "the run began with algorithms of matrix products for {} with cuBLASLt {}, which this "
        "device or library cannot take: its numbers may differ in their last bits",
        table.device, table.library);
    return {};
  }
  use_matmul_algorithms(stream, table);
  return table;
}

}  // namespace spool
