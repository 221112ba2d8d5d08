// runs: alone
// The search for cuDNN, and the reason it reports when none is usable.

#include "spool/runtime/cuda/cudnn.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr const char* missing = "libcudnn-missing.so";

Cudnn open(const std::vector<const char*>& files) { return open_cudnn(files); }

TEST(Cudnn, ReportsThatItIsMissing) {
  const Cudnn found = open({missing});
  EXPECT_FALSE(found);
  EXPECT_TRUE(contains(found.why_not, "cuDNN is not found: ")) << found.why_not;
  EXPECT_TRUE(contains(found.why_not, missing)) << found.why_not;
}

TEST(Cudnn, ReportsThatItIsTooOld) {
  const Cudnn found = open({SPOOL_OLD_CUDNN});
  EXPECT_FALSE(found);
  EXPECT_EQ(found.why_not, "cuDNN here is 9.1.0, and Spool needs at least 9.18.0");
}

TEST(Cudnn, IsFoundBehindUnusableOnes) {
  for (const char* first : {missing, SPOOL_OLD_CUDNN}) {
    const Cudnn found = open({first, SPOOL_NEW_CUDNN});
    EXPECT_TRUE(found) << found.why_not;
    EXPECT_EQ(found.version, 91900u);
    EXPECT_NE(found.library, nullptr);
  }
}

TEST(Cudnn, ReportsTheFirstOfSeveralUnusableOnes) {
  EXPECT_TRUE(contains(open({SPOOL_OLD_CUDNN, missing}).why_not, "9.1.0"));
}

}  // namespace
}  // namespace spool::testing
