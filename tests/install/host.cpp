// A program that loads a plugin, uses it and unloads it, twice: host PLUGIN.

#include <dlfcn.h>

#include <cstdio>

int main(int, char** argv) {
  for (int i = 0; i < 2; ++i) {
    void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    void* const found = plugin ? dlsym(plugin, "computed_by_the_plugin") : nullptr;
    if (!found) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    const float got = reinterpret_cast<float (*)()>(found)();
    if (got != 9) return std::fprintf(stderr, "the plugin computed %g, not 9\n", double{got}), 1;
    if (dlclose(plugin) != 0) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  }
}
