#include "spool/runtime/cuda/cudnn.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "spool/runtime/check.h"

namespace spool {
namespace {

bool is_disabled() {
  const char* value = std::getenv("SPOOL_CUDNN");
  return value && std::string_view(value) == "0";
}

std::string version_text(size_t v) { return sentence(v / 10000, ".", v / 100 % 100, ".", v % 100); }

Cudnn open_one(const char* file) {
  Cudnn c{.library = dlopen(file, RTLD_NOW)};
  if (!c.library) {
    c.why_not = sentence("cuDNN is not found: ", dlerror());
    return c;
  }
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(c.library, "cudnnGetVersion"));
  c.version = version ? version() : 0;
  if (c.version < min_cudnn) {
    c.why_not = sentence("cuDNN here is ", version_text(c.version), ", and Spool needs at least ",
                         version_text(min_cudnn));
  }
  return c;
}

#if SPOOL_CUDNN
// Opens the system's library, else the one next to the headers of the build.
Cudnn load() {
  constexpr const char* files[] = {"libcudnn.so.9",
#ifdef SPOOL_CUDNN_LIBRARY
                                   SPOOL_CUDNN_LIBRARY
#endif
  };
  return open_cudnn(files);
}
#elif SPOOL_CUDNN_EMULATED
Cudnn load() { return {.version = min_cudnn}; }
#else
Cudnn load() { return {.why_not = "this build is without cuDNN"}; }
#endif

}  // namespace

Cudnn open_cudnn(std::span<const char* const> files) {
  Cudnn first = open_one(files.front());
  for (size_t i = 1; i < files.size() && !first; ++i) {
    if (const Cudnn other = open_one(files[i])) return other;
  }
  return first;
}

Cudnn find_cudnn() {
  if (is_disabled()) return {.why_not = "SPOOL_CUDNN is 0 in the environment"};
  static const Cudnn loaded = load();
  return loaded;
}

}  // namespace spool
