// Public: one of the headers of docs/public-headers.md.
#pragma once

// Cuts the ops of any model over ranks that share each micro-batch (docs/sharding.md):
//
//   StepDescription step{.make_model = make<Net>, .config = {.ranks = 2}};
//   step.shards = shards("tensor=2", "megatron");
//   run_ranks(2, [&](const std::shared_ptr<Communicator>& own) {
//     StepRunner runner(step, {}, {.ranks = own});
//     ...
//   });
//
// No line of the model changes.  Ranks beyond those of the mesh form more such groups, which have
// micro-batches of their own.

#include <string>

#include "spool/autograd/program.h"
#include "spool/models/steps/step.h"

namespace spool {

// `mesh`: the axes, at most four, with the number of ranks along each: "tensor=2" or "2x4".
// `how`: a policy of planner/sharding/shard_choice.h ("none", "rows", "megatron", "megatron-rows"
// or "auto"), or a file of save_shards().  The choice is by the clock of a cpu that is always the
// same, so that all ranks make the same.  Throws if the mesh cannot be read; what cannot be cut so
// is refused once there is a loss.
StepShards shards(const std::string& mesh, const std::string& how);
// As an assignment says of the program of a loss.  What else a model computes is cut as "megatron"
// does with parameters stored so, and the loss of another batch as "auto" does.
StepShards shards(const std::string& mesh, const Program&, const Assignment&);

// Ranks that have micro-batches of their own, of which each computes all of every op: for stage 3
// of ZeRO, where ops gather parameters.
StepShards whole_micro_batches();

// Writes how the ops of these steps are cut to a file, of any such choice.
void save_shards(const std::string& path, const StepDescription&);
// The text of such a file, and the shards that it says.
std::string shards_text(const StepDescription&);
StepShards parse_shards(const std::string& text, const std::string& name, const StepDescription&,
                        const std::string& mesh);

}  // namespace spool
