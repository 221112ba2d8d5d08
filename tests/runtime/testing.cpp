#include "tests/runtime/testing.h"

#include <cstdlib>

#include "spool/runtime/cuda/device.h"

namespace spool::testing {

ErrorFields expect_error(ErrorKind kind, std::initializer_list<std::string_view> words,
                         const std::function<void()>& work, const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, "expect_error");
  try {
    work();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << text;
    for (const std::string_view word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
    return e.fields();
  }
  ADD_FAILURE() << "no Error is thrown";
  return {};
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool there_is_cuda() {
#if SPOOL_CUDA
  return cuda_device_count() > 0;
#else
  return false;
#endif
}

bool nightly() {
  const char* value = std::getenv("SPOOL_NIGHTLY");
  return value && std::string_view(value) == "1";
}

bool finds_races() {
#if defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
  return __has_feature(thread_sanitizer);
#else
  return false;
#endif
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace spool::testing
