// The search for cuBLASLt, and the sentences where it is missing or lacks a function.

#include "spool/runtime/cuda/cublas_lt.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr const char* missing = "libcublasLt-missing.so";
constexpr const char* other = "libm.so.6";

void* open(const std::vector<const char*>& files) { return open_cublas_lt(files); }

TEST(CublasLt, ReportsThatItIsMissingAndWhatWouldHelp) {
  expect_error(ErrorKind::device,
               {"cuBLASLt, which computes products on cuda, is not found: ", missing,
                "install the cuBLAS of NVIDIA's CUDA toolkit"},
               [] {
                 open({missing, "libcublasLt-other.so"});
               });
}

TEST(CublasLt, IsFoundBehindOneThatIsMissing) {
  void* const library = open({missing, other});
  ASSERT_NE(library, nullptr);
  EXPECT_NE(find_cublas_lt(library, "cos"), nullptr);
}

TEST(CublasLt, ReportsAFunctionThatItLacks) {
  void* const library = open({other});
  expect_error(ErrorKind::device, {"the cuBLASLt that is found here has no cublasLtCreate"},
               [&] { find_cublas_lt(library, "cublasLtCreate"); });
}

}  // namespace
}  // namespace spool::testing
