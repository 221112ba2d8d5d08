// The file of a device's measurements.

#include "spool/planner/machines/device_table.h"

#include "spool/planner/machines/device_identity.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const DeviceIdentity ours{{"device", "cpu"}, {"threads", "2"}};

DeviceTable some_table() {
  return {.device = ours,
          .rates = Machine{.f32_flops = 1e11 / 3, .launch_seconds = 1e-6 / 7},
          .event_seconds = 1e-6 / 3,
          .disks = {{"/tmp", 1e9 / 3}},
          .links = {{{"mpi", 16, 1}, {.seconds = 1e-3, .bytes_per_second = 2e9}},
                    {{"mpi", 16, 2}, {.seconds = 1e-4, .bytes_per_second = 1e9}},
                    {{"threads", 4, 1}, {.seconds = 1e-5 / 3, .bytes_per_second = 1e10 / 3}}},
          .kernels = {{"add", {.bytes = 12}, 0.1},
                      {"matmul", {.flops = 2e9 / 3, .bytes = 7, .dtype = DType::bf16}, 1e-3 / 3}}};
}

TEST(DeviceTable, IsReadAsItWasWritten) {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "deep" / "table.json";
  save_table(file, some_table());
  const DeviceTable read = load_table(file, ours);
  EXPECT_EQ(read.device, ours);
  EXPECT_EQ(read.rates.value_or(Machine{}).f32_flops, 1e11 / 3);
  EXPECT_EQ(read.rates.value_or(Machine{}).launch_seconds, 1e-6 / 7);
  EXPECT_EQ(read.event_seconds, 1e-6 / 3);
  EXPECT_EQ(read.disks, some_table().disks);
  ASSERT_EQ(read.links.size(), 3u);
  EXPECT_EQ(read.links.at({"threads", 4, 1}).seconds, 1e-5 / 3);
  EXPECT_EQ(read.links.at({"threads", 4, 1}).bytes_per_second, 1e10 / 3);
  EXPECT_EQ(read.links.at({"mpi", 16, 2}).seconds, 1e-4);
  ASSERT_EQ(read.kernels.size(), 2u);
  EXPECT_TRUE(same_kernel(read.kernels[1], some_table().kernels[1]));
  EXPECT_EQ(read.kernels[1].seconds, some_table().kernels[1].seconds);
  const std::string text = content_of(file);
  save_table(file, read);
  EXPECT_EQ(content_of(file), text);
}

TEST(DeviceTable, IsReadFromItsText) {
  const DeviceTable read = table_from_text(to_text(some_table()), "a rank's");
  EXPECT_EQ(to_text(read), to_text(some_table()));
  expect_error(ErrorKind::file, {"a rank's"}, [] { table_from_text("[]", "a rank's"); });
}

TEST(DeviceTable, TakesTheSlowestOfRanks) {
  DeviceTable slowest{.rates = Machine{.f32_flops = 4, .bytes_per_second = 5, .launch_seconds = 1},
                      .event_seconds = 1,
                      .disks = {{"/tmp", 7}},
                      .kernels = {{"add", {.bytes = 12}, 0.1}, {"mul", {.bytes = 12}, 0.4}}};
  const DeviceTable other{
      .rates = Machine{.f32_flops = 3, .bytes_per_second = 6, .launch_seconds = 2},
      .event_seconds = 2,
      .disks = {{"/tmp", 6}},
      .kernels = {{"add", {.bytes = 12}, 0.3}, {"mul", {.bytes = 12}, 0.2}}};
  take_slowest(slowest, other);
  EXPECT_EQ(slowest.rates->f32_flops, 3);
  EXPECT_EQ(slowest.rates->bytes_per_second, 5);
  EXPECT_EQ(slowest.rates->launch_seconds, 2);
  EXPECT_EQ(slowest.event_seconds, 2);
  EXPECT_EQ(slowest.disks.at("/tmp"), 6);
  EXPECT_EQ(slowest.kernels[0].seconds, 0.3);
  EXPECT_EQ(slowest.kernels[1].seconds, 0.4);
  DeviceTable another = other;
  another.kernels[0].cost.bytes = 16;
  for (const DeviceTable& odd : {DeviceTable{}, another}) {
    expect_error(ErrorKind::invalid, {"different things"}, [&] { take_slowest(slowest, odd); });
  }
}

TEST(DeviceTable, IsEmptyWithoutAFile) {
  const TemporaryDirectory folder;
  const DeviceTable none = load_table(folder.path() / "none.json", ours);
  EXPECT_EQ(none.device, ours);
  EXPECT_FALSE(none.rates);
  EXPECT_TRUE(none.kernels.empty());
}

TEST(DeviceTable, OfAnotherDeviceIsRefused) {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "table.json";
  save_table(file, some_table());
  DeviceIdentity other = ours;
  other["threads"] = "16";
  expect_error(ErrorKind::file, {"table.json", "another device", "threads", "16"},
               [&] { load_table(file, other); });
}

TEST(DeviceTable, ThatIsDamagedIsRefused) {
  const TemporaryDirectory folder;
  save_table(folder.path() / "whole.json", some_table());
  const std::string whole = content_of(folder.path() / "whole.json");
  const auto refused = [&](const std::string& from, const std::string& to,
                           std::initializer_list<std::string_view> words) {
    std::string text = whole;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto file = folder.file("damaged.json", text);
    expect_error(ErrorKind::file, words, [&] { load_table(file, ours); });
  };
  refused("\"spool_kernels\": 1", "\"spool_kernels\": 2", {"damaged.json", "version"});
  refused("\"seconds\":0.1", "\"seconds\":-0.1", {"kernels[0].seconds"});
  refused("\"flops\":0.0", "\"flops\":-4", {"kernels[0].flops"});
  refused("\"dtype\":\"bf16\"", "\"dtype\":\"bf17\"", {"kernels[1].dtype"});
  refused("\"name\":\"add\"", "\"name\":\"\"", {"kernels[0]"});
  refused("\"backend\":\"mpi\"", "\"backend\":\"mpy\"", {"links[0]", "mpy"});
  refused("\"backend\":\"mpi\"", "\"backend\":7", {"links[0].backend"});
  refused("\"machines\":2", "\"machines\":17", {"links[1].machines"});
  refused("\"machines\":2", "\"machines\":1", {"links[1]", "twice"});
  refused("\"ranks\":16", "\"ranks\":1", {"links[0].ranks"});
  refused("\"ranks\":4", "\"ranks\":-4", {"links[2].ranks"});
  refused("\"seconds\":0.0001", "\"seconds\":0", {"links[1].seconds"});
  refused("\"bytes_per_second\":1000000000.0", "\"bytes_per_second\":-1",
          {"links[1].bytes_per_second"});
  refused("\"ranks\":4,", "", {"links[2].ranks"});
  refused(whole.substr(whole.size() / 2), "", {"damaged.json"});
  refused(whole, "", {"damaged.json"});
}

DeviceTable table_for_elsewhere(const Architecture& architecture) {
  DeviceTable table = some_table();
  table.measured = MeasuredDevice{.name = "there",
                                  .architecture = architecture,
                                  .memory = size_t{1} << 30,
                                  .host_memory = size_t{1} << 31};
  return table;
}

TEST(DeviceTable, SaysWhatItsDeviceIs) {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "table.json";
  save_table(file, table_for_elsewhere(
                       CudaArchitecture{.major = 8, .minor = 9, .fused_attention = false}));
  const DeviceTable read = load_table_of_any_device(file);
  EXPECT_EQ(read.device, ours);
  ASSERT_TRUE(read.measured);
  EXPECT_EQ(read.measured->name, "there");
  EXPECT_EQ(read.measured->memory, size_t{1} << 30);
  EXPECT_EQ(read.measured->host_memory, size_t{1} << 31);
  const auto& gpu = std::get<CudaArchitecture>(read.measured->architecture);
  EXPECT_EQ(gpu.major, 8);
  EXPECT_EQ(gpu.minor, 9);
  EXPECT_FALSE(gpu.fused_attention);
  EXPECT_EQ(load_table(file, ours).kernels.size(), 2u);
  const std::string text = content_of(file);
  save_table(file, read);
  EXPECT_EQ(content_of(file), text);
}

TEST(DeviceTable, ForElsewhereThatIsDamagedIsRefused) {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "whole.json";
  save_table(file, table_for_elsewhere(
                       CpuArchitecture{.threads = 2, .bf16_products = Bf16Products::tiles}));
  const std::string whole = content_of(file);
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& said) {
    std::string text = whole;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    const auto damaged = folder.file("damaged.json", text.replace(at, from.size(), to));
    expect_error(ErrorKind::file, {"damaged.json", said},
                 [&] { load_table_of_any_device(damaged); });
  };
  refused("spool_kernels", "spool_plan", "spool_kernels is missing");
  refused("\"spool_kernels\": 1", "\"spool_kernels\": 2", "spool_kernels");
  refused("\"rates\"", "\"rats\"", "there is no field rates");
  refused("\"machine\"", "\"device_2\"", "there is no field machine");
  refused("\"memory\":1073741824", "\"memory\":0", "machine.memory");
  refused("\"memory\":1073741824", "\"memory\":-1", "machine.memory");
  refused("\"memory\":1073741824", "\"memory\":1e400", "damaged.json");
  refused("\"threads\":2", "\"threads\":0", "machine.cpu.threads");
  refused("\"threads\":2", "\"threads\":2.5", "machine.cpu.threads");
  refused("\"tiles\"", "\"tile\"", "machine.cpu.bf16_products");
  refused("\"cpu\":{", "\"tpu\":{", "field machine: has cpu or cuda");
  refused("\"name\":\"there\"", "\"name\":\"\\u001b[2J\"", "machine.name");
  refused("\"f32_flops\":", "\"f32_flops\":-", "rates.f32_flops");
  expect_error(ErrorKind::file, {"none.json"},
               [&] { load_table_of_any_device(folder.path() / "none.json"); });
  expect_error(ErrorKind::file, {}, [&] { load_table_of_any_device(folder.path()); });
  EXPECT_TRUE(is_table(file));
  EXPECT_FALSE(is_table(folder.path() / "none.json"));
}

TEST(DeviceTable, IsOnlyLoweredUnlessItIsReplaced) {
  const std::vector<KernelTime> measured{{"add", {.bytes = 12}, 0.2}, {"gelu", {}, 5}};
  const auto seconds_after = [&](double before, Renewal renewal) {
    DeviceTable table{.kernels = {{"add", {.bytes = 12}, before}}};
    add_kernels(table, measured, renewal);
    EXPECT_EQ(table.kernels.size(), 2u);
    EXPECT_EQ(table.kernels[1].seconds, 5);
    return table.kernels[0].seconds;
  };
  EXPECT_EQ(seconds_after(0.1, Renewal::lower), 0.1);
  EXPECT_EQ(seconds_after(0.3, Renewal::lower), 0.2);
  EXPECT_EQ(seconds_after(0.1, Renewal::replace), 0.2);
  EXPECT_EQ(seconds_after(0.3, Renewal::keep), 0.3);
}

TEST(DeviceIdentity, NamesWhatSpeedDependsOn) {
  const auto stream = open_stream({DeviceType::cpu}, Arena::granule, 3);
  const DeviceIdentity device = identify(*stream, DType::bf16);
  EXPECT_EQ(device.at("threads"), "3");
  EXPECT_EQ(device.at("products"), "bf16");
  for (const char* key : {"build", "device", "libraries", "processor"}) {
    EXPECT_FALSE(device.at(key).empty()) << key;
  }
  EXPECT_NE(table_file("/x", device), table_file("/x", identify(*stream, DType::f32)));
  EXPECT_EQ(table_file("/x", device), table_file("/x", device));
  EXPECT_EQ(device, identify(*stream, DType::bf16, {}, /*ranks=*/1));
  EXPECT_EQ(identify(*stream, DType::bf16, {}, /*ranks=*/4).at("ranks"), "4");
}

TEST(DeviceIdentity, SaysWhichProductsOfBf16WereMeasured) {
  const auto identity = [](const char* unit) {
    const EnvironmentVariable setting("SPOOL_TILE_UNIT", unit);
    return identify(*open_stream({DeviceType::cpu}, Arena::granule, 1), DType::bf16);
  };
  const DeviceIdentity absent = identity("absent"), emulated = identity("emulated");
  EXPECT_EQ(absent.at("bf16_products"), name(bf16_products(TileUnit::absent)));
  EXPECT_EQ(emulated.at("bf16_products"), "emulated tiles");
  EXPECT_NE(table_file("/x", absent), table_file("/x", emulated));
}

TEST(CacheFolder, IsTheEnvironments) {
  const EnvironmentVariable home("HOME", "/home/someone");
  {
    const EnvironmentVariable cache("XDG_CACHE_HOME", "/var/cache/mine");
    EXPECT_EQ(cache_folder(), "/var/cache/mine/spool");
  }
  const EnvironmentVariable cache("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(cache_folder(), "/home/someone/.cache/spool");
  const EnvironmentVariable relative("HOME", "somewhere");
  EXPECT_TRUE(cache_folder().empty());
}

}  // namespace
}  // namespace spool::testing
