// What Linux says of memory, and the limits of control groups of both versions.

#include "spool/runtime/memory/host_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

TEST(HostMemory, IsWhatLinuxSays) {
  EXPECT_LE(available_host_memory(), host_memory());
  EXPECT_GT(available_host_memory(), 0u);
  const size_t before = resident_memory();
  EXPECT_LT(before, host_memory());
  constexpr size_t bytes = size_t{64} << 20, page = 4096;
  const std::unique_ptr<volatile char[]> more(new volatile char[bytes]);
  for (size_t i = 0; i < bytes; i += page) more[i] = 'a';
  EXPECT_GE(resident_memory(), before + bytes / 2);
}

class ControlGroups : public ::testing::Test {
 protected:
  ControlGroups() {
    folder_.file("proc/self/mountinfo",
                 "30 1 0:26 / /groups rw,nosuid - cgroup2 cgroup2 rw\n"
                 "31 30 0:27 / /groups/memory rw - cgroup cgroup rw,memory\n");
  }
  void write(const std::string& name, const std::string& text) const {
    folder_.file("groups/" + name, text);
  }
  ControlGroupMemory of(const std::string& groups) const {
    folder_.file("proc/self/cgroup", groups);
    return control_group_memory(folder_.path());
  }

  TemporaryDirectory folder_;
};

TEST_F(ControlGroups, WithoutALimitAreUnlimited) {
  write("memory.max", "max\n");
  for (const char* groups : {"", "0::/\n", "0::/absent/group\n", "nonsense\n", "1:cpu:/\n"}) {
    EXPECT_EQ(of(groups).limit, ControlGroupMemory::unlimited) << groups;
    EXPECT_EQ(of(groups).available, ControlGroupMemory::unlimited) << groups;
  }
}

TEST_F(ControlGroups, OfTheSecondVersionHoldForThoseWithin) {
  write("memory.max", "9000");
  write("memory.current", "7000");
  write("user/memory.max", "5000");
  write("user/memory.current", "4500");
  write("user/memory.stat", "anon 4000\ninactive_file 500\n");
  write("user/job/memory.max", "max");
  EXPECT_EQ(of("0::/user/job\n").limit, 5000u);
  EXPECT_EQ(of("0::/user/job\n").available, 1000u);
  EXPECT_EQ(of("0::/\n").limit, 9000u);
  EXPECT_EQ(of("0::/\n").available, 2000u);
  write("user/memory.current", "6000");
  EXPECT_EQ(of("0::/user/job\n").available, 0u);
}

TEST_F(ControlGroups, OfTheFirstVersionAreThoseOfTheMemoryController) {
  write("memory/batch/memory.limit_in_bytes", "3000");
  write("memory/batch/memory.usage_in_bytes", "1000");
  write("memory/batch/memory.stat", "inactive_file 1\ntotal_inactive_file 400\n");
  const ControlGroupMemory found = of("5:cpu,cpuacct:/batch\n4:memory:/batch\n0::/\n");
  EXPECT_EQ(found.limit, 3000u);
  EXPECT_EQ(found.available, 2400u);
  EXPECT_EQ(of("4:cpu:/batch\n").limit, ControlGroupMemory::unlimited);
}

}  // namespace
}  // namespace spool::testing
