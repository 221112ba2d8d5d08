#pragma once

// What an assignment cuts, in words for people.

#include <string>
#include <vector>

#include "spool/autograd/sharding/shard_program.h"

namespace spool {

// What an index of an op's notation counts: "rows" of n, "heads" of h.
std::string counted_by(char index);

// A line for each axis: "along tensor: attn.c_attn by outputs, attention by heads, ... in each
// block; embedding by vocabulary".  Of a block's ops that are left out, and of those beside the
// blocks, a rank does all; a product with a parameter and attention are said to be whole, as one
// may have expected otherwise.
std::vector<std::string> cuts_in_words(const Program&, const Assignment&, const MeshAxes&);

}  // namespace spool
