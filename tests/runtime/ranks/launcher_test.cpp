// runs: threads
// The rank that a launcher made of a process, and where its ranks meet, follow from variables.

#include "spool/runtime/ranks/launcher.h"

#include <map>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& all) {
  return [all](const char* name) {
    const auto at = all.find(name);
    return at == all.end() ? nullptr : at->second.c_str();
  };
}

Variables operator+(Variables all, const Variables& more) {
  all.insert(more.begin(), more.end());
  return all;
}

const Variables torchrun{
    {"RANK", "3"},         {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},
    {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Variables mpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "12345"}};
const Variables mpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}};
const Variables batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "77"}};
const Variables srun = batch + Variables{{"SLURM_STEP_NUM_TASKS", "16"},
                                         {"SLURM_LOCALID", "0"},
                                         {"SLURM_STEP_ID", "2"},
                                         {"SLURM_STEP_NUM_NODES", "2"},
                                         {"SLURM_STEP_NODELIST", "gpu[07-09,12],login"}};

struct RankLauncher : ::testing::Test {
  void expect_rank(const Variables& all, const std::string& launcher, int rank, int size) {
    const auto found = rank_of_launcher(of(all));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->launcher, launcher);
    EXPECT_EQ(found->rank, rank);
    EXPECT_EQ(found->size, size);
  }
};

TEST_F(RankLauncher, IsKnownByItsVariables) {
  expect_rank(torchrun, "torchrun", 3, 8);
  expect_rank(mpirun, "mpirun", 1, 2);
  expect_rank(mpich, "mpirun", 0, 4);
  expect_rank(srun, "srun", 0, 16);
  expect_rank({{"SPOOL_RANK", "2"}, {"SPOOL_RANKS", "3"}}, "spool", 2, 3);
}

TEST_F(RankLauncher, TheInnermostCounts) {
  expect_rank(srun + mpirun, "mpirun", 1, 2);
  expect_rank(srun + mpirun + torchrun, "torchrun", 3, 8);
}

TEST_F(RankLauncher, IsNoneInABatchScriptOfSlurmOrOfOneProcess) {
  EXPECT_FALSE(rank_of_launcher(of({})));
  EXPECT_FALSE(rank_of_launcher(of(batch)));
  EXPECT_FALSE(rank_of_launcher(of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
}

TEST_F(RankLauncher, WhoseVariablesAreThereInPartOrWrongIsRefused) {
  expect_error(ErrorKind::invalid, {"RANK is set", "WORLD_SIZE is not", "torchrun"}, [] {
    rank_of_launcher(of({{"RANK", "0"}}));
  });
  expect_error(ErrorKind::invalid, {"PMI_SIZE is set", "PMI_RANK is not"}, [] {
    rank_of_launcher(of({{"PMI_SIZE", "2"}}));
  });
  for (const char* wrong : {"", "-1", "two", "1.5", "99999999999"}) {
    expect_error(ErrorKind::invalid, {"WORLD_SIZE is '", wrong}, [&] {
      rank_of_launcher(of({{"RANK", "0"}, {"WORLD_SIZE", wrong}}));
    });
  }
  expect_error(ErrorKind::invalid, {"RANK is 2", "WORLD_SIZE 2", "count from 0"}, [] {
    rank_of_launcher(of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}));
  });
}

MeetingPlace place_of(const Variables& all, const std::string& meet = "") {
  return meeting_place(*rank_of_launcher(of(all)), meet, of(all));
}

TEST_F(RankLauncher, RanksMeetBesideTorchrunsOwnStore) {
  EXPECT_EQ(place_of(torchrun).host, "n1");
  EXPECT_EQ(place_of(torchrun).port, 29501);
  EXPECT_EQ(place_of(torchrun).job, "none");
  Variables by_hand = torchrun;
  by_hand.erase("TORCHELASTIC_RUN_ID");
  EXPECT_EQ(place_of(by_hand).port, 29500);
  by_hand.erase("MASTER_PORT");
  expect_error(ErrorKind::invalid, {"MASTER_ADDR is set", "MASTER_PORT is not"},
               [&] { place_of(by_hand); });
}

TEST_F(RankLauncher, RanksOfOneMachineMeetAtASocketOfTheirJob) {
  EXPECT_EQ(place_of(mpirun).host, "");
  EXPECT_TRUE(place_of(mpirun).job.starts_with("12345-"));
  const MeetingPlace own =
      place_of({{"SPOOL_RANK", "0"}, {"SPOOL_RANKS", "2"}, {"SPOOL_MEETING", "job 7/8"}});
  EXPECT_TRUE(own.job.starts_with("job_7_8-"));
  const std::string long_name(500, 'x');
  EXPECT_LT(place_of(mpirun + Variables{{"SPOOL_MEETING", long_name}}).job.size(), 80);
}

TEST_F(RankLauncher, RanksOfSlurmOverMachinesMeetAtTheFirst) {
  EXPECT_EQ(place_of(srun).host, "gpu07");
  EXPECT_GE(place_of(srun).port, 20'000);
  EXPECT_LT(place_of(srun).port, 60'000);
  Variables next = srun;
  next["SLURM_STEP_ID"] = "3";
  EXPECT_NE(place_of(next).port, place_of(srun).port);
  next["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(place_of(next).host, "");
  EXPECT_EQ(place_of(next).job.substr(0, 5), "77.3-");
}

TEST_F(RankLauncher, RanksMeetWhereTheUserSays) {
  EXPECT_EQ(place_of(torchrun, "n2:7000").host, "n2");
  EXPECT_EQ(place_of(torchrun, "n2:7000").port, 7000);
  EXPECT_EQ(place_of(torchrun, "[::1]:7000").host, "::1");
  for (const char* wrong : {"n2", ":7000", "n2:", "n2:0", "n2:65536", "n2:seven"}) {
    expect_error(ErrorKind::invalid, {wrong, "is not HOST:PORT"},
                 [&] { place_of(torchrun, wrong); });
  }
}

TEST_F(RankLauncher, FindsTheFirstHostOfAList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[3-5]"), "node3");
  EXPECT_EQ(first_host("node[3,9]-ib,other"), "node3-ib");
  expect_error(ErrorKind::invalid, {"node[3", "no list of machines"}, [] { first_host("node[3"); });
}

}  // namespace
}  // namespace spool::testing
