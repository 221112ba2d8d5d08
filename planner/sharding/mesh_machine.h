#pragma once

// A machine that has the ranks of a mesh, with a link for each axis.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/autograd/sharding/mesh_axes.h"
#include "spool/runtime/device.h"

namespace spool {

struct MeshMachine {
  Machine machine = {};          // of one rank
  std::vector<Link> links = {};  // by axis
};

// The machine that a text names (machine_text.h), or as many of it as the mesh has ranks; `link`
// replaces its own along all axes.  Throws if it has another number of ranks.
MeshMachine mesh_machine(const std::string& text, const MeshAxes&,
                         const std::optional<Link>& link = {});

// "450e9,8e-6": bytes per second, each way, and the seconds that an exchange takes beside them.
// Throws for any other text.
Link parse_link(std::string_view);

// The link of each axis: that between machines if any of its groups has ranks on several.
std::vector<Link> links_of_axes(const Mesh&, const MeshAxes&);

}  // namespace spool
