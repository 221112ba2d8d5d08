#pragma once

// Saves and loads how a program is cut over a mesh, as a JSON file for people and programs to read:
//
//   {
//     "links": [{"bytes_per_second": 4.5e11, "seconds": 8e-06}, ... for each axis, by whose prices
//               values move; or none],
//     "mesh": "2x4",
//     "nodes": ["nv", "--", "no", "nh", ... the index that each axis cuts],
//     "parameters": {"wte.weight": ["shared", "cut 0"], ... or "whole", for each axis},
//     "spool_shards": 2,
//     "tape_fingerprint": "00d1e9bbe4c2a7f1"
//   }
//
// The file is for one program: another model, batch or type has another fingerprint, and is
// refused.  Equal assignments have equal bytes.  Version 1 has no links.

#include <string>

#include "spool/autograd/sharding/shard_program.h"

namespace spool {

inline constexpr int newest_shards_version = 2;

// That text, and what it says; `name` is of where it comes from, for errors.
std::string shards_text(const Program&, const MeshAxes&, const Assignment&);
Assignment parse_shards(const std::string& text, const std::string& name, const Program&,
                        const MeshAxes&);

// The file appears under its name only when it is complete.  The assignment has the storage of each
// parameter in `given`, and its rows are joined (strategies.h).  Throws if load_shards() would not
// read the same back.
void save_shards(const std::string& path, const Program&, const MeshAxes&, const Assignment&);
// Throws, naming the file, if it is not of this program and mesh, or if an op or a parameter cannot
// be cut so.
Assignment load_shards(const std::string& path, const Program&, const MeshAxes&);

}  // namespace spool
