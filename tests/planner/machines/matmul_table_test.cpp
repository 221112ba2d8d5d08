// The file of the fastest algorithms for matrix products.

#include "spool/planner/machines/matmul_table.h"

#include <nlohmann/json.hpp>

#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const MatmulAlgorithms some{
    .device = "NVIDIA H200", .library = 130100, .places = {{"a product of (2, 3)", 3}, {"b", 0}}};

TEST(MatmulTable, IsReadAsItWasWritten) {
  const TemporaryDirectory folder;
  save_matmul_table(matmul_table_file(folder.path(), some), some);
  const MatmulAlgorithms read = load_matmul_table(folder.path(), some);
  EXPECT_TRUE(read.is_of_device_of(some));
  EXPECT_EQ(read.places, some.places);
}

TEST(MatmulTable, IsEmptyForAnotherDeviceOrLibraryAndWithoutAFolder) {
  const TemporaryDirectory folder;
  save_matmul_table(matmul_table_file(folder.path(), some), some);
  MatmulAlgorithms other = some;
  ++other.library;
  EXPECT_TRUE(load_matmul_table(folder.path(), other).places.empty());
  EXPECT_TRUE(load_matmul_table({}, some).places.empty());
  EXPECT_TRUE(load_matmul_table(folder.path(), {}).places.empty());
}

TEST(MatmulTable, SaysWhatIsWrongWithAFile) {
  const TemporaryDirectory folder;
  const auto file = matmul_table_file(folder.path(), some);
  MatmulAlgorithms other = some;
  other.device = "another";
  save_matmul_table(file, other);
  expect_error(ErrorKind::file, {file.native(), "another device"},
               [&] { load_matmul_table(folder.path(), some); });
  const auto refused = [](const char* field, const nlohmann::json& value) {
    nlohmann::json table = to_json(some);
    table[field] = value;
    expect_error(ErrorKind::file, {field},
                 [&] { matmul_algorithms_from_json(JsonField(table, "table.json")); });
    table.erase(field);
    expect_error(ErrorKind::file, {field},
                 [&] { matmul_algorithms_from_json(JsonField(table, "table.json")); });
  };
  refused("format", "another");
  refused("format_version", 2);
  refused("device", 7);
  refused("cublaslt", -1);
  refused("places", 1);
  refused("places", {{"a", max_matmul_algorithms}});
  refused("places", {{"a", "first"}});
}

}  // namespace
}  // namespace spool::testing
