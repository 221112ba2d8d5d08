#include "device.h"

#include <cstdio>
#include <cstring>

namespace spool::benchmarks {

std::string take_argument(int& argc, char** argv, const std::string& name,
                          const std::string& otherwise) {
  const std::string head = "--" + name + "=";
  std::string value = otherwise;
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    if (std::strncmp(argv[i], head.c_str(), head.size()) == 0) {
      value = argv[i] + head.size();
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return value;
}

bool take_flag(int& argc, char** argv, const std::string& name) {
  char** const end = std::remove_if(argv, argv + argc,
                                    [&](const char* argument) { return "--" + name == argument; });
  const bool is_given = end != argv + argc;
  argc = static_cast<int>(end - argv);
  return is_given;
}

int report_errors(const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace spool::benchmarks
