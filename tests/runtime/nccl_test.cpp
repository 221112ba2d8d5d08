// runs: alone
// The search for NCCL, and what is said when none is usable.

#include "spool/runtime/cuda/nccl.h"

#include "tests/runtime/environment.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr const char* no_nccl = "libnccl-missing.so";

Nccl open(const std::vector<const char*>& files) { return open_nccl(files); }

// What is said of a file, which must be refused with what would help.
std::string refusal(const char* file) {
  const Nccl found = open({file});
  EXPECT_FALSE(found) << file;
  constexpr std::string_view help =
      "; install NVIDIA's libnccl2, or `pip install nvidia-nccl-cu13` and name the folder of its "
      "libnccl.so.2 in LD_LIBRARY_PATH";
  EXPECT_TRUE(found.why_not.ends_with(help)) << found.why_not;
  return found.why_not.substr(0, found.why_not.find(';'));
}

TEST(Nccl, SaysThatItIsMissing) {
  const std::string said = refusal(no_nccl);
  EXPECT_TRUE(said.starts_with("NCCL cannot be loaded: ")) << said;
  EXPECT_TRUE(contains(said, no_nccl)) << said;
}

TEST(Nccl, SaysThatAFileIsNoLibrary) {
  const TemporaryDirectory folder;
  const std::string file = folder.file("libnccl.so.2", "not a library").string();
  const std::string said = refusal(file.c_str());
  EXPECT_TRUE(said.starts_with("NCCL cannot be loaded: " + file)) << said;
}

TEST(Nccl, SaysThatALibraryIsAnother) {
  EXPECT_EQ(refusal("libm.so.6"), "libm.so.6 is no NCCL: it has no ncclGetVersion");
}

TEST(Nccl, SaysWhichFunctionIsMissing) {
  EXPECT_EQ(refusal(SPOOL_EMPTY_NCCL),
            sentence(SPOOL_EMPTY_NCCL, " is no NCCL: it has no ncclGetErrorString"));
}

TEST(Nccl, SaysWhichVersionsWouldDo) {
  const std::string needed = ", and Spool needs 2.28 or a newer version 2";
  EXPECT_EQ(refusal(SPOOL_OLD_NCCL), "NCCL here is 2.27.5" + needed);
  EXPECT_EQ(refusal(SPOOL_OLDEST_NCCL), "NCCL here is 2.8.4" + needed);
  EXPECT_EQ(refusal(SPOOL_OTHER_NCCL), "NCCL here is 3.0.1" + needed);
}

TEST(Nccl, IsFoundBehindUnusableOnes) {
  for (const char* first : {no_nccl, SPOOL_OLD_NCCL, SPOOL_OTHER_NCCL, SPOOL_EMPTY_NCCL}) {
    const Nccl found = open({first, SPOOL_NEW_NCCL});
    EXPECT_TRUE(found) << found.why_not;
    EXPECT_EQ(found.version, 23004);
    EXPECT_NE(found.library, nullptr);
  }
}

TEST(Nccl, SaysWhatIsWrongWithTheFirstOfSeveralUnusableOnes) {
  EXPECT_TRUE(contains(open({SPOOL_OLD_NCCL, no_nccl}).why_not, "2.27.5"));
}

TEST(Nccl, IsSwitchedOffByTheEnvironment) {
  const EnvironmentVariable off("SPOOL_NCCL", "0");
  EXPECT_EQ(find_nccl().why_not, "SPOOL_NCCL is 0 in the environment; unset it");
  EXPECT_EQ(nccl_in_words(), find_nccl().why_not);
}

TEST(Nccl, IsWhatTheBuildHas) {
  const EnvironmentVariable unset("SPOOL_NCCL", {});
  const Nccl found = find_nccl();
  const std::string_view kind = SPOOL_NCCL_BUILT;
  if (kind == "off") {
    EXPECT_EQ(found.why_not,
              "this build is without NCCL; build Spool with CUDA's toolkit and nccl.h, which "
              "scripts/nccl.sh fetches");
  } else {
    EXPECT_FALSE(contains(found.why_not, "this build")) << found.why_not;
    EXPECT_TRUE(found || kind == "on") << found.why_not;
  }
  if (found) {
    EXPECT_GE(found.version, min_nccl);
    EXPECT_TRUE(nccl_in_words().starts_with("NCCL 2.")) << nccl_in_words();
  }
}

}  // namespace
}  // namespace spool::testing
