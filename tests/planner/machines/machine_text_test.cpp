// Texts that say which machine to plan for.

#include "spool/planner/machines/machine_text.h"

#include "spool/planner/machines/device_table.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/meta/kernel_times.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t GiB = size_t{1} << 30;

void refused(const std::string& text, std::initializer_list<std::string_view> words) {
  SCOPED_TRACE(text);
  EXPECT_FALSE(is_machine_file(text));
  expect_error(ErrorKind::invalid, words, [&] { machine_from_text(text); });
}

TEST(MachineText, OfACpuHasTheRatesOfItsWords) {
  const AbsentMachine absent = machine_from_text("cpu:16,avx512,3.5GHz,80GB/s,64GiB");
  const Machine& m = absent.machine;
  EXPECT_EQ(m.name, "cpu:16,avx512,3.5GHz,80GB/s,64GiB");
  EXPECT_EQ(absent.memory, 64 * GiB);
  EXPECT_FALSE(absent.host_memory);
  EXPECT_EQ(std::get<CpuArchitecture>(m.architecture).threads, 16);
  EXPECT_DOUBLE_EQ(m.f32_flops, 16 * 3.5e9 * 64 * 0.8);
  EXPECT_DOUBLE_EQ(m.bf16_flops, m.f32_flops);
  EXPECT_DOUBLE_EQ(m.bytes_per_second, 64e9);
  EXPECT_DOUBLE_EQ(m.to_host_bytes_per_second, 32e9);
  EXPECT_DOUBLE_EQ(m.from_host_bytes_per_second, 32e9);
  EXPECT_DOUBLE_EQ(m.host_memory_bytes_per_second, 64e9);
  EXPECT_EQ(m.launch_seconds, 2e-6);
}

TEST(MachineText, OfACpuKnowsInstructionSets) {
  const auto of = [](const std::string& words) {
    return machine_from_text("cpu:2," + words).machine;
  };
  const auto products = [&](const std::string& words) {
    return std::get<CpuArchitecture>(of(words).architecture).bf16_products;
  };
  const double cycles = 2 * 1e9 * 0.8;
  EXPECT_DOUBLE_EQ(of("avx2,1GHz,20GB/s").f32_flops, 32 * cycles);
  EXPECT_DOUBLE_EQ(of("avx2,1000MHz,20GB/s").bf16_flops, 32 * cycles);
  EXPECT_DOUBLE_EQ(of("avx512,1GHz,20GB/s,one-port").f32_flops, 32 * cycles);
  EXPECT_DOUBLE_EQ(of("avx512bf16,1GHz,20GB/s").f32_flops, 64 * cycles);
  EXPECT_DOUBLE_EQ(of("avx512bf16,1GHz,20GB/s").bf16_flops, 128 * cycles);
  EXPECT_DOUBLE_EQ(of("avx512bf16,1GHz,20GB/s,8GiB,one-port").bf16_flops, 64 * cycles);
  EXPECT_DOUBLE_EQ(of("amx,1GHz,20GB/s").bf16_flops, 128 * cycles);
  EXPECT_EQ(products("avx2,1GHz,20GB/s"), Bf16Products::as_f32);
  EXPECT_EQ(products("avx512,1GHz,20GB/s"), Bf16Products::as_f32);
  EXPECT_EQ(products("avx512bf16,1GHz,20GB/s"), Bf16Products::pairs);
  EXPECT_EQ(products("amx,1GHz,20GB/s"), Bf16Products::tiles);
}

TEST(MachineText, OfACpuMayLeaveItsMemoryOpen) {
  EXPECT_FALSE(machine_from_text("cpu:1,avx2,2GHz,20GB/s").memory);
  EXPECT_EQ(machine_from_text("cpu:1,avx512,2GHz,20GB/s,one-port,2GiB").memory, 2 * GiB);
}

TEST(MachineText, OfASheetMayHaveOtherMemoryAndAnotherLink) {
  const AbsentMachine sheet = machine_from_text("rtx4090");
  EXPECT_EQ(sheet.machine.name, "rtx4090");
  EXPECT_EQ(sheet.memory, 24'000'000'000u);
  const AbsentMachine larger = machine_from_text("rtx4090,400GiB");
  EXPECT_EQ(larger.memory, 400 * GiB);
  EXPECT_EQ(larger.machine.bf16_flops, sheet.machine.bf16_flops);
  EXPECT_EQ(larger.machine.to_host_bytes_per_second, sheet.machine.to_host_bytes_per_second);
  for (const char* text :
       {"rtx4090,link=6GB/s", "rtx4090,link=6GB/s,24GB", "rtx4090,24GB,link=6GB/s"}) {
    const AbsentMachine slow = machine_from_text(text);
    EXPECT_EQ(slow.memory, sheet.memory) << text;
    EXPECT_EQ(slow.machine.to_host_bytes_per_second, 6e9) << text;
    EXPECT_EQ(slow.machine.from_host_bytes_per_second, 6e9) << text;
    EXPECT_EQ(slow.machine.bytes_per_second, sheet.machine.bytes_per_second) << text;
  }
}

TEST(MachineText, ThatIsNoMachineIsRefused) {
  for (const char* text : {"h2000", "", ",", "CPU", "cpu", "this,24GiB", "rtx5090,link=6GB/s"}) {
    refused(text, {"there is no machine", "rtx4090", "cpu:16,avx512,3.5GHz,80GB/s,64GiB"});
  }
  refused("cpu:", {"has 1 word of 4", "cpu:16,avx512,3.5GHz,80GB/s,64GiB"});
  refused("cpu:4,avx2", {"has 2 words of 4"});
}

TEST(MachineText, WithAWrongNumberIsRefused) {
  for (const char* threads :
       {"0", "-1", "+2", "4097", "99999999999999999999", "1.5", "two", "", " 2", "0x4", "nan"}) {
    refused(sentence("cpu:", threads, ",avx2,2GHz,20GB/s"), {"no number of threads", "1 to 4096"});
  }
  for (const char* set : {"avx", "AVX2", "avx512vnni", "", "neon"}) {
    refused(sentence("cpu:2,", set, ",2GHz,20GB/s"), {"no instruction set", "avx512bf16 or amx"});
  }
  for (const char* clock : {"2", "0GHz", "-2GHz", "nanGHz", "infGHz", "1e400GHz", "1e-400GHz",
                            "2000GHz", "0.5MHz", "2GHz ", "GHz", "", "2 GHz", "20GB/s"}) {
    refused(sentence("cpu:2,avx2,", clock, ",20GB/s"), {"no clock", "3.5GHz"});
  }
  for (const char* rate : {"20", "20GB", "GB/s", "/s", "", "20/s", "0GB/s", "-1GB/s", "nanGB/s",
                           "infGB/s", "1e400GB/s", "1e300TB/s", "20GX/s", "20GB/s/s", "2GHz"}) {
    refused(sentence("cpu:2,avx2,2GHz,", rate), {"no rate", "80GB/s"});
    refused(sentence("h200,link=", rate), {"no rate", "80GB/s"});
    refused(sentence("h200,ranks=", rate), {"no rate", "80GB/s"});
  }
  for (const char* memory : {"24", "0GiB", "-1GiB", "1e400GiB", "nanGiB", "much", "", "GiB"}) {
    refused(sentence("cpu:2,avx2,2GHz,20GB/s,", memory), {"no amount of memory", "64GiB"});
    refused(sentence("h200,", memory), {"no amount of memory", "64GiB"});
  }
}

TEST(MachineText, WithAWordTooManyIsRefused) {
  refused("cpu:2,avx2,2GHz,20GB/s,two-port", {"'two-port'", "64GiB"});
  refused("cpu:2,avx2,2GHz,20GB/s,one-port", {"'one-port'", "avx2 has no 512 bits"});
  refused("cpu:2,amx,2GHz,20GB/s,one-port,one-port", {"'one-port' is there twice"});
  refused("cpu:2,avx2,2GHz,20GB/s,2GiB,4GiB", {"'4GiB' is a word too many"});
  refused("cpu:2,avx2,2GHz,20GB/s,link=2GB/s", {"link", "its own memory"});
  refused("h200,2GiB,4GiB", {"'4GiB' is a word too many", "link=6GB/s"});
  refused("h200,link=2GB/s,link=4GB/s", {"'link=4GB/s' is a word too many"});
  refused("h200,ranks=2GB/s,ranks=4GB/s", {"'ranks=4GB/s' is a word too many", "ranks=450GB/s"});
  refused("cpu:2,avx2,2GHz,20GB/s,ranks=2GB/s", {"ranks", "its own memory"});
}

TEST(MachineText, MayHaveARankOnEachOfSeveralDevices) {
  const AbsentMachine eight = machine_from_text("8xh200");
  EXPECT_EQ(eight.machine.name, "h200");
  EXPECT_EQ(eight.machine.mesh.ranks, 8);
  EXPECT_EQ(eight.memory, machine_from_text("h200").memory);
  const AbsentMachine words = machine_from_text("2x4xrtx4090,400GiB,link=6GB/s");
  EXPECT_EQ(words.machine.name, "rtx4090,400GiB,link=6GB/s");
  EXPECT_EQ(words.machine.mesh.ranks, 8);
  EXPECT_EQ(words.machine.mesh.ranks_of_machine, 4);
  EXPECT_EQ(words.memory, 400 * GiB);
  EXPECT_EQ(words.machine.to_host_bytes_per_second, 6e9);
  AbsentMachine fast = machine_from_text("8xh200,ranks=450GB/s");
  EXPECT_EQ(fast.machine.mesh.link.seconds, eight.machine.mesh.link.seconds);
  give_ranks(fast, 8);
  EXPECT_EQ(fast.machine.mesh.link.bytes_per_second, 450e9);
  EXPECT_EQ(fast.machine.to_host_bytes_per_second, eight.machine.to_host_bytes_per_second);
  const Mesh slow = machine_from_text("2x8xh200,ranks=10GB/s").machine.mesh;
  EXPECT_EQ(slow.between_machines.bytes_per_second, 10e9) << "none is faster than within one";
  EXPECT_EQ(machine_from_text("h200").machine.mesh.ranks, 0);
  const Machine cpu = machine_from_text("cpu:4,avx2,2GHz,40GB/s").machine;
  EXPECT_EQ(cpu.mesh.link.bytes_per_second, link_by_memory(32e9).bytes_per_second);
}

TEST(MachineText, GivesRanksThatASettingMayGiveToo) {
  AbsentMachine eight = machine_from_text("8xh200");
  give_ranks(eight, 0);
  EXPECT_EQ(eight.machine.mesh.ranks, 8);
  give_ranks(eight, 8);
  EXPECT_EQ(eight.machine.mesh.ranks, 8);
  expect_error(ErrorKind::invalid, {"has 8"}, [&] { give_ranks(eight, 2); });
  AbsentMachine one = machine_from_text("h200");
  give_ranks(one, 0);
  EXPECT_EQ(one.machine.mesh.ranks, 0);
}

TEST(MachineText, OfRanksHasNumbersThatCanBe) {
  for (const std::string text : {"0xh200", "xh200", "3x4x5xh200", "99999xh200", "2x17xh200"}) {
    refused(text, {"'" + text + "' has no number of ranks", "8xh200", "2x8xh200"});
  }
  refused("0xrtx4090,400GiB", {"'0xrtx4090' has no number", "8xrtx4090"});
  refused("8x", {"there is no machine '8x'", "h200", "8xh200", "2x8xh200"});
  refused("8xh2000", {"there is no machine '8xh2000'"});
  refused("8xcpu:4,avx2,2GHz,40GB/s", {"there is no machine"});
}

TEST(MachineText, OfAFileIsAMeasuredDevice) {
  const TemporaryDirectory folder;
  const DeviceTable table{
      .device = {{"device", "cpu"}},
      .rates = Machine{.f32_flops = 1e11, .bf16_flops = 3e11, .launch_seconds = 1e-6},
      .disks = {{"/fast", 3e9}},
      .links = {{{"sockets", 3, 1}, {.seconds = 1e-5, .bytes_per_second = 5e9}},
                {{"threads", 3, 1}, {.seconds = 1e-5, .bytes_per_second = 7e9}}},
      .kernels = {{"add", {.bytes = 12}, 0.25}},
      .measured = MeasuredDevice{
          .name = "a cpu",
          .architecture = CpuArchitecture{.threads = 6, .bf16_products = Bf16Products::tiles},
          .memory = 3 * GiB,
          .host_memory = 4 * GiB}};
  const std::string file = folder.path() / "there.json";
  save_table(file, table);
  EXPECT_TRUE(is_machine_file(file));
  const AbsentMachine absent = machine_from_text(file);
  EXPECT_EQ(absent.machine.name, "a cpu");
  EXPECT_EQ(absent.machine.bf16_flops, 3e11);
  const auto& cpu = std::get<CpuArchitecture>(absent.machine.architecture);
  EXPECT_EQ(cpu.threads, 6);
  EXPECT_EQ(cpu.bf16_products, Bf16Products::tiles);
  EXPECT_EQ(absent.memory, 3 * GiB);
  EXPECT_EQ(absent.host_memory, 4 * GiB);
  EXPECT_EQ(absent.disks.at("/fast"), 3e9);
  const double* seconds = absent.machine.kernels->find("add", {.bytes = 12});
  ASSERT_TRUE(seconds);
  EXPECT_EQ(*seconds, 0.25);
  const auto rate_of_ranks = [&](int ranks, const char* backend) {
    AbsentMachine with_ranks = absent;
    EXPECT_EQ(give_ranks(with_ranks, ranks, backend), ranks == 3 ? backend : "");
    EXPECT_EQ(with_ranks.machine.mesh.ranks, ranks);
    return with_ranks.machine.mesh.link.bytes_per_second;
  };
  const double nominal = link_by_memory(20e9).bytes_per_second;
  EXPECT_EQ(absent.machine.mesh.link.bytes_per_second, nominal);
  EXPECT_EQ(rate_of_ranks(3, "threads"), 7e9);
  EXPECT_EQ(rate_of_ranks(3, "sockets"), 5e9);
  EXPECT_EQ(rate_of_ranks(2, "threads"), nominal);
}

TEST(MachineText, OfAFileOfRanksIsThePartOfOne) {
  const TemporaryDirectory folder;
  const std::string file = folder.path() / "ranks.json";
  save_table(file, {.device = {{"device", "cpu"}, {"ranks", "3"}},
                    .rates = Machine{.f32_flops = 1e11},
                    .links = {{{"threads", 3, 1}, {.seconds = 1e-5, .bytes_per_second = 7e9}}},
                    .measured = MeasuredDevice{.name = "a cpu",
                                               .architecture = CpuArchitecture{.threads = 2},
                                               .memory = 3 * GiB,
                                               .host_memory = 3 * GiB,
                                               .ranks = 3}});
  for (const int ranks : {0, 3}) {
    AbsentMachine absent = machine_from_text(file);
    give_ranks(absent, ranks);
    EXPECT_EQ(absent.machine.mesh.ranks, 3);
    EXPECT_EQ(absent.machine.mesh.link.bytes_per_second, 7e9);
    EXPECT_EQ(absent.machine.f32_flops, 1e11);
    EXPECT_EQ(std::get<CpuArchitecture>(absent.machine.architecture).threads, 2);
    EXPECT_EQ(absent.memory, 3 * GiB);
  }
  AbsentMachine absent = machine_from_text(file);
  expect_error(ErrorKind::invalid, {"2 is not", "has 3"}, [&] { give_ranks(absent, 2); });
}

TEST(MachineText, NamesAFileByItsPlace) {
  for (const char* text : {"there.json", "./there", "/tmp/a,b", "folder/h200"}) {
    EXPECT_TRUE(is_machine_file(text)) << text;
    expect_error(ErrorKind::file, {text}, [&] { machine_from_text(text); });
  }
  EXPECT_TRUE(is_machine_file("/"));
  for (const char* text : {"h200", "h200,24GiB", "h200,link=6GB/s", "cpu:2,avx2,2GHz,2GB/s", "x"}) {
    EXPECT_FALSE(is_machine_file(text)) << text;
  }
}

}  // namespace
}  // namespace spool::testing
