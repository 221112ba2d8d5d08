#include "spool/runtime/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/nccl_names.h"

namespace spool {
namespace {

constexpr const char* to_install =
    "; install NVIDIA's libnccl2, or `pip install nvidia-nccl-cu13` and name the folder of its "
    "libnccl.so.2 in LD_LIBRARY_PATH";

#define SPOOL_NCCL_NAME(name) "nccl" #name,
constexpr const char* needed_functions[] = {SPOOL_NCCL_FUNCTIONS(SPOOL_NCCL_NAME)};
#undef SPOOL_NCCL_NAME

bool is_nccl_disabled() {
  const char* value = std::getenv("SPOOL_NCCL");
  return value && std::string_view(value) == "0";
}

// Versions before 2.9 are 1000 major + 100 minor + patch.
std::string nccl_version_text(int v) {
  const int major = v < 10000 ? v / 1000 : v / 10000;
  return sentence(major, ".", v / 100 % (v < 10000 ? 10 : 100), ".", v % 100);
}

std::string fault_of_version(int version) {
  if (version >= min_nccl && version / 10000 == min_nccl / 10000) return {};
  return sentence("NCCL here is ", nccl_version_text(version), ", and Spool needs ",
                  min_nccl / 10000, ".", min_nccl / 100 % 100, " or a newer version ",
                  min_nccl / 10000, to_install);
}

// Empty if the library has all functions.
std::string fault_of_functions(void* library, const char* file) {
  for (const char* name : needed_functions) {
    if (!dlsym(library, name)) return sentence(file, " is no NCCL: it has no ", name, to_install);
  }
  return {};
}

Nccl open_nccl_file(const char* file) {
  Nccl found{.library = dlopen(file, RTLD_NOW)};
  if (!found.library) {
    found.why_not = sentence("NCCL cannot be loaded: ", dlerror(), to_install);
    return found;
  }
  using GetVersion = int(int*);  // in place of NCCL's type of errors
  const auto get_version = reinterpret_cast<GetVersion*>(dlsym(found.library, "ncclGetVersion"));
  if (get_version) {
    (void)get_version(&found.version);  // leaves 0 where it fails
    found.why_not = fault_of_version(found.version);
  }
  if (found) found.why_not = fault_of_functions(found.library, file);
  return found;
}

#if SPOOL_NCCL_EMULATED
Nccl load_nccl() { return open_nccl_file(/*file=*/nullptr); }  // it is part of the program
#elif SPOOL_NCCL
// Opens the system's library, else the one that came with the header of the build.
Nccl load_nccl() {
  constexpr const char* files[] = {"libnccl.so.2",
#ifdef SPOOL_NCCL_LIBRARY
                                   SPOOL_NCCL_LIBRARY
#endif
  };
  return open_nccl(files);
}
#else
Nccl load_nccl() {
  return {.why_not =
              "this build is without NCCL; build Spool with CUDA's toolkit and nccl.h, "
              "which scripts/nccl.sh fetches"};
}
#endif

}  // namespace

Nccl open_nccl(std::span<const char* const> files) {
  Nccl first = open_nccl_file(files.front());
  for (size_t i = 1; i < files.size() && !first; ++i) {
    if (Nccl other = open_nccl_file(files[i])) return other;
  }
  return first;
}

Nccl find_nccl() {
  if (is_nccl_disabled()) return {.why_not = "SPOOL_NCCL is 0 in the environment; unset it"};
  static const Nccl loaded = load_nccl();
  return loaded;
}

std::string nccl_in_words() {
  const Nccl found = find_nccl();
  return found ? "NCCL " + nccl_version_text(found.version) : found.why_not;
}

}  // namespace spool
