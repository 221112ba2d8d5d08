// Links between ranks of a machine that need not be here.

#include "spool/planner/machines/links.h"

#include "spool/planner/machines/device_table.h"
#include "spool/planner/machines/machine.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Ranks, AreThoseOfASetting) {
  const auto mesh = [](const char* name, int ranks) {
    Machine machine = *named_machine(name);
    set_ranks(machine, ranks);
    return machine.mesh;
  };
  EXPECT_EQ(mesh("h200", 8).ranks, 8);
  EXPECT_EQ(mesh("h200", 8).ranks_of_machine, 0);
  EXPECT_EQ(mesh("h200", 16).machine_of(8), 1);
  EXPECT_EQ(mesh("16xh200", 16).machine_of(8), 0);
  EXPECT_EQ(mesh("2x4xh200", 8).machine_of(4), 1);
  Machine cpu{.architecture = CpuArchitecture{}};
  set_ranks(cpu, 64);
  EXPECT_EQ(cpu.mesh.machine_of(63), 0);
  expect_error(ErrorKind::invalid, {"4 is not", "has 8", "leave it out"},
               [&] { mesh("8xh200", 4); });
}

TEST(MeasuredLink, IsThatOfAsManyRanksOnAsManyMachines) {
  const Links links{{{"nccl", 16, 2}, {.seconds = 1, .bytes_per_second = 2}},
                    {{"nccl", 8, 1}, {.seconds = 3, .bytes_per_second = 4}}};
  Machine two = *named_machine("2x8xh200");
  EXPECT_EQ(use_measured_link(two, {}, "nccl"), "");
  EXPECT_EQ(two.mesh.ranks_of_machine, 8);
  EXPECT_EQ(use_measured_link(two, links, "nccl"), "nccl");
  EXPECT_EQ(two.mesh.link.bytes_per_second, 2);
  EXPECT_EQ(two.mesh.machine_of(15), 0) << "the link is that of all messages";
  Machine one = *named_machine("8xh200");
  EXPECT_EQ(use_measured_link(one, links, "nccl"), "nccl");
  EXPECT_EQ(one.mesh.link.seconds, 3);
  Machine sixteen = *named_machine("16xh200");
  EXPECT_EQ(use_measured_link(sixteen, links, "nccl"), "");
  Machine alone = *named_machine("h200");
  EXPECT_EQ(use_measured_link(alone, links, "nccl"), "");
}

TEST(MeasuredLink, IsThatOfOtherExchangesWhereItsOwnWasNotMeasured) {
  const Links links{{{"mpi", 4, 1}, {.seconds = 1, .bytes_per_second = 2}},
                    {{"threads", 4, 1}, {.seconds = 3, .bytes_per_second = 4}},
                    {{"sockets", 2, 1}, {.seconds = 5, .bytes_per_second = 6}}};
  const auto rate_by = [&](const char* backend) {
    Machine four{.architecture = CpuArchitecture{}};
    set_ranks(four, 4);
    const std::string used = use_measured_link(four, links, backend);
    return std::pair(used, four.mesh.link.bytes_per_second);
  };
  EXPECT_EQ(rate_by("threads"), std::pair(std::string("threads"), 4.0));
  EXPECT_EQ(rate_by("sockets"), std::pair(std::string("mpi"), 2.0));
}

TEST(MeasuredLink, IsSaidInWords) {
  EXPECT_EQ(in_words(LinkKey{"threads", 4, 1}, {.seconds = 12e-6, .bytes_per_second = 4.1e9}),
            "4 ranks by threads: 12 us, 4.1 GB/s each way");
  EXPECT_EQ(in_words(LinkKey{"mpi", 16, 2}, {.seconds = 12e-6, .bytes_per_second = 25e9}),
            "16 ranks by mpi on 2 machines: 12 us, 25 GB/s each way");
}

TEST(MeasuredLink, IsAddedToTheFileOfTheTable) {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "table.json";
  const DeviceIdentity device{{"device", "cpu"}};
  const LinkKey four{"threads", 4, 1};
  save_table(file, {.device = device, .kernels = {{"add", {.bytes = 12}, 0.1}}});
  store_link(file, device, four, {.seconds = 2, .bytes_per_second = 20}, Renewal::keep);
  store_link(file, device, {"mpi", 4, 1}, {.seconds = 5, .bytes_per_second = 50}, Renewal::keep);
  const auto kept = [&](const Link& link, Renewal renewal) {
    store_link(file, device, four, link, renewal);
    const Link now = load_table(file, device).links.at(four);
    return std::pair(now.seconds, now.bytes_per_second);
  };
  EXPECT_EQ(kept({.seconds = 1, .bytes_per_second = 30}, Renewal::keep), std::pair(2.0, 20.0));
  EXPECT_EQ(kept({.seconds = 1, .bytes_per_second = 10}, Renewal::lower), std::pair(1.0, 20.0));
  EXPECT_EQ(kept({.seconds = 3, .bytes_per_second = 30}, Renewal::lower), std::pair(1.0, 30.0));
  EXPECT_EQ(kept({.seconds = 4, .bytes_per_second = 5}, Renewal::replace), std::pair(4.0, 5.0));
  const DeviceTable table = load_table(file, device);
  EXPECT_EQ(table.kernels.size(), 1u);
  EXPECT_EQ(table.links.at({"mpi", 4, 1}).bytes_per_second, 50);
  EXPECT_THROW(store_link(file, {{"device", "other"}}, four, {}, Renewal::keep), Error);
}

}  // namespace
}  // namespace spool::testing
