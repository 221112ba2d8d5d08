// How many cores a process may use: by affinity, and by quotas of control groups of both versions.

#include "spool/runtime/cpu/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "spool/runtime/cpu/control_groups.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* version_1 =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "31 22 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n";
constexpr const char* version_2 =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";

class UsableCores : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { root_.file(name, text); }
  // The cores of a process that may run on 64.
  int in(const std::string& mounts, const std::string& groups) const {
    write("proc/self/mountinfo", mounts);
    write("proc/self/cgroup", groups);
    return usable_cores(64, root_.path());
  }

  TemporaryDirectory root_;
};

TEST_F(UsableCores, AreThoseOfTheAffinityWithoutAQuota) {
  EXPECT_EQ(usable_cores(5, root_.path()), 5);  // without /proc
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(in(version_2, "0::/\n"), 64);
  EXPECT_EQ(in(version_1, "3:cpu,cpuacct:/\n"), 64);
  EXPECT_EQ(in(version_1, "nonsense\n3:cpu,cpuacct:/absent/group\n"), 64);
  EXPECT_EQ(in("nonsense\n\n- cgroup2\n", "0::/\n"), 64);
}

TEST_F(UsableCores, AreThoseOfAQuotaRoundedUpAndAtLeastOne) {
  const auto with_quota = [&](const std::string& quota) {
    write("sys/fs/cgroup/job/cpu.max", quota);
    return in(version_2, "0::/job\n");
  };
  EXPECT_EQ(with_quota("300000 100000\n"), 3);
  EXPECT_EQ(with_quota("310000 100000\n"), 4);
  EXPECT_EQ(with_quota("75000 50000\n"), 2);
  EXPECT_EQ(with_quota("1000 100000\n"), 1);
  EXPECT_EQ(with_quota("12800000 100000\n"), 64);
  for (const char* damaged : {"", "words", "300000", "0 100000", "-5 100000", "300000 0"}) {
    EXPECT_EQ(with_quota(damaged), 64) << damaged;
  }
}

TEST_F(UsableCores, AreTheSmallestQuotaOfTheGroupAndThoseAroundIt) {
  write("sys/fs/cgroup/user/cpu.max", "400000 100000");
  write("sys/fs/cgroup/user/job/cpu.max", "max 100000");
  write("sys/fs/cgroup/user/small/cpu.max", "200000 100000");
  EXPECT_EQ(in(version_2, "0::/user/job\n"), 4);
  EXPECT_EQ(in(version_2, "0::/user/job/deeper/absent\n"), 4);
  EXPECT_EQ(in(version_2, "0::/user/small\n"), 2);
  EXPECT_EQ(in(version_2, "0::/other\n"), 64);
}

TEST_F(UsableCores, OfTheFirstVersionAreThoseOfTheCpuController) {
  write("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(in(version_1, "4:memory:/\n3:cpu,cpuacct:/batch/job\n0::/batch\n"), 3);
  EXPECT_EQ(in(version_1, "3:cpuset:/batch\n2:cpuacct:/batch\n"), 64);
}

// A container sees the host's name of its group, and its own group as the top one.
TEST_F(UsableCores, OfAContainerAreThoseOfItsMountedGroup) {
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  const std::string mounted = "40 9 0:30 /docker/3f /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
  EXPECT_EQ(in(mounted, "7:cpu:/docker/3f\n"), 2);
  EXPECT_EQ(in(mounted, "7:cpu:/../elsewhere\n"), 2);
  write("sys/fs/cgroup/cpu/own/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu/own/cpu.cfs_period_us", "100000");
  EXPECT_EQ(in(mounted, "7:cpu:/docker/3f/own\n"), 1);
  EXPECT_EQ(in(mounted, "7:cpu:/docker/3f0/own\n"), 2);  // of another name
}

TEST_F(UsableCores, AreFoundWhereTheMountsNameHasBlanks) {
  write("my groups/a\\b/cpu.max", "700000 100000");
  const std::string mounted = "30 22 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(in(mounted, "0::/a\\b\n"), 7);
}

TEST(ControlGroupFolders, AreThoseOfTheGroupAndThenOfThoseAroundIt) {
  const TemporaryDirectory root;
  root.file("proc/self/mountinfo", version_2);
  root.file("proc/self/cgroup", "0::/a/b\n");
  std::vector<fs::path> found;
  for (const ControlGroup& group : control_groups("cpu", root.path())) {
    EXPECT_EQ(group.version, 2);
    found.push_back(group.folder.lexically_normal().lexically_relative(root.path()));
  }
  const std::vector<fs::path> wanted{"sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup/"};
  EXPECT_EQ(found, wanted);
}

// A thread has an affinity of its own, and a new one begins with its maker's.
TEST(UsableCoresOfThisProcess, AreThoseThatItMayRunOn) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(CpuStream(0).threads(), 1);
  }).join();
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace spool::testing
