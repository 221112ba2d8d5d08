#include "spool/planner/sharding/mesh_machine.h"

#include <charconv>
#include <cmath>

#include "spool/planner/machines/machine_text.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

// Whether ranks that differ along this axis alone are on several machines.
bool leaves_machine(const Mesh& mesh, const MeshAxes& axes, size_t axis) {
  int stride = 1;  // from a rank to the next along the axis
  for (size_t inner = axis + 1; inner < axes.size(); ++inner) stride *= axes[inner];
  for (int first = 0; first < axes.ranks(); ++first) {
    const int last = first + stride * (axes[axis] - 1);
    const bool is_first = first / stride % axes[axis] == 0;
    if (is_first && mesh.machine_of(first) != mesh.machine_of(last)) return true;
  }
  return false;
}

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

std::vector<Link> links_of_axes(const Mesh& mesh, const MeshAxes& axes) {
  std::vector<Link> links;
  for (size_t a = 0; a < axes.size(); ++a) {
    links.push_back(leaves_machine(mesh, axes, a) ? mesh.between_machines : mesh.link);
  }
  return links;
}

MeshMachine mesh_machine(const std::string& text, const MeshAxes& axes,
                         const std::optional<Link>& link) {
  AbsentMachine absent = machine_from_text(text);
  const int ranks = axes.ranks(), there = absent.machine.mesh.ranks;
  check_setting(there == 0 || there == ranks, {"machine", "mesh"}, "the machine ", text, " has ",
                there, " ranks, and the mesh ", axes.text(), " has ", ranks,
                "; give a mesh of as many, or the name of one device");
  give_ranks(absent, ranks);
  MeshMachine found{.machine = absent.machine, .links = links_of_axes(absent.machine.mesh, axes)};
  if (link) found.links.assign(axes.size(), *link);
  return found;
}

Link parse_link(std::string_view text) {
  const size_t comma = text.find(',');
  const auto rate = number_in(text.substr(0, comma));
  const auto seconds =
      comma == std::string_view::npos ? std::nullopt : number_in(text.substr(comma + 1));
  const bool is_link = rate && seconds && std::isfinite(*rate) && *rate > 0 &&
                       std::isfinite(*seconds) && *seconds >= 0;
  check_setting(is_link, {"link"}, "'", text, "' is no link; give bytes per second above 0 and ",
                "seconds from 0 on, such as 450e9,8e-6");
  return {.seconds = *seconds, .bytes_per_second = *rate};
}

}  // namespace spool
