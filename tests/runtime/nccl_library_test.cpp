// runs: alone, slow
// NCCL itself, where it is: without a GPU it has every function, says its version and makes ids.

#include "spool/runtime/cuda/nccl.h"
#include "tests/runtime/testing.h"
#if SPOOL_HAS_NCCL_HEADER
#include "tests/runtime/nccl/unique_id.h"
#endif

namespace spool::testing {
namespace {

// The system's, else the one that came with the header of the build.
Nccl open_anywhere() {
  constexpr const char* files[] = {"libnccl.so.2", SPOOL_NCCL_LIBRARY};
  return open_nccl(files);
}

TEST(NcclLibrary, HasEveryFunctionAndAVersion) {
  const Nccl found = open_anywhere();
  if (contains(found.why_not, "cannot be loaded")) GTEST_SKIP() << found.why_not;
  EXPECT_TRUE(found) << found.why_not;
  EXPECT_GE(found.version, min_nccl);
}

#if SPOOL_HAS_NCCL_HEADER
TEST(NcclLibrary, MakesIdsThatDiffer) {
  const Nccl found = open_anywhere();
  if (!found) GTEST_SKIP() << found.why_not;
  const std::string one = unique_id(found);
  const std::string other = unique_id(found);
  EXPECT_EQ(one.size(), 128u);
  EXPECT_NE(one, std::string(128, '\0'));
  EXPECT_NE(one, other);
}
#endif

}  // namespace
}  // namespace spool::testing
