#include "spool/runtime/version.h"

#include "commit.h"
#include "spool/runtime/check.h"

namespace spool {

const char* version() { return SPOOL_VERSION; }

const char* commit() { return SPOOL_COMMIT; }

std::string build() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr const char* kind = ", with sanitizers";
#elif defined(__OPTIMIZE__)
  constexpr const char* kind = "";
#else
  constexpr const char* kind = ", not optimised";
#endif
  return sentence(__VERSION__, kind);
}

}  // namespace spool
