#pragma once

// spool shard --model: how ranks that share micro-batches are best to cut a model's ops, on a
// machine that need not be here, and in a budget.  Its JSON is that of a choice
// (models/training/sharding_choice.h) with the mesh, the machine, the budget, the foretold step and
// peak, how each parameter is stored, the exchanges of a step, and the arrangements of the ranks,
// if several were tried.

#include <CLI/CLI.hpp>
#include <string>

namespace spool {

struct ShardModelFlags {
  std::string mesh, machine, link, json;
};

void add_shard_model_flags(CLI::App&);
// With the settings of the command's flags.  Returns the exit status.
int shard_model(const CLI::App&, const ShardModelFlags&);

}  // namespace spool
