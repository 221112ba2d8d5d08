#include "spool/planner/machines/links.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "spool/runtime/check.h"
#include "spool/runtime/units.h"

namespace spool {

Link link_by_memory(double bytes_per_second) {
  return {.seconds = 20e-6, .bytes_per_second = bytes_per_second / 4};
}

std::string in_words(const LinkKey& ranks, const Link& link) {
  return fmt::format("{} ranks by {}{}: {}, {:.3g} GB/s each way", ranks.ranks, ranks.backend,
                     ranks.machines > 1 ? fmt::format(" on {} machines", ranks.machines) : "",
                     format_seconds(link.seconds), link.bytes_per_second / 1e9);
}

void set_ranks(Machine& machine, int ranks) {
  constexpr int of_machine = 8;
  Mesh& mesh = machine.mesh;
  const bool is_named = mesh.ranks > 0;
  check_setting(!is_named || mesh.ranks == ranks, {"ranks"}, ranks, " is not the number of ",
                "ranks of the machine to plan for, which has ", mesh.ranks, "; leave it out");
  mesh.ranks = ranks;
  const bool has_gpus = std::holds_alternative<CudaArchitecture>(machine.architecture);
  if (!is_named && has_gpus && ranks > of_machine) mesh.ranks_of_machine = of_machine;
}

LinkKey link_key(const Machine& machine, const std::string& backend) {
  const Mesh& mesh = machine.mesh;
  return {.backend = backend,
          .ranks = mesh.ranks,
          .machines = mesh.ranks > 0 ? mesh.machine_of(mesh.ranks - 1) + 1 : 1};
}

std::string use_measured_link(Machine& machine, const Links& links, const std::string& backend) {
  const auto is_of_ranks = [&](const auto& link) {
    return link.first == link_key(machine, link.first.backend);
  };
  auto at = links.find(link_key(machine, backend));
  if (at == links.end()) at = std::ranges::find_if(links, is_of_ranks);
  if (at == links.end()) return {};
  machine.mesh.link = at->second;
  machine.mesh.ranks_of_machine = 0;
  return at->first.backend;
}

}  // namespace spool
