#include <spdlog/fmt/fmt.h>

#include <memory>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/describe_file.h"
#include "spool/models/cli/terminal_text.h"

namespace spool {

std::function<int()> add_info(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  app.add_option("PATH", *path, "File or directory that Spool reads or writes")->required();
  return [path] {
    const auto [what, details] = describe_file(*path);
    fmt::print("{}: {}\n", one_line(*path), one_line(what));
    for (const auto& [name, value] : details) {
      std::string_view rest = value;
      for (std::string_view label = name; !rest.empty(); label = "") {
        const size_t end = std::min(rest.find('\n'), rest.size());
        fmt::print("  {:<16} {}\n", one_line(label), one_line(rest.substr(0, end)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return 0;
  };
}

}  // namespace spool
