#pragma once

// Chooses, for each attention of a step on cuda, the parts that cuDNN's backward is cut into, or
// Spool's kernels (kernels/attention_sizes.h): the fastest by the nominal clock of those that the
// memory has room for when that backward runs.  Its workspace is freed before the next one's
// begins, so each is chosen by itself.  As chunks do, the choice may change the order of sums.

#include <map>
#include <vector>

#include "spool/models/steps/step.h"
#include "spool/planner/chunks.h"
#include "spool/planner/search/searched_step.h"

namespace spool {

// The step with these parts, whatever the plan that is rehearsed says.
SearchedStep with_parts(SearchedStep, const std::vector<NodesInChunks>&);

// Whether both run every op in the same chunks, and every attention in the same parts.
bool are_in_same_chunks(const IdTable<NodeId, int>& a, const IdTable<NodeId, int>& b);

class PartsChoice {
 public:
  // Nothing is to be chosen on another device, nor where parts make no difference.
  PartsChoice(const StepDescription&, const Machine&);
  explicit operator bool() const { return !options_.empty(); }

  // The parts that take fewest bytes, those that are fastest in any memory, and those of a plan.
  std::vector<NodesInChunks> smallest() const { return within({}, 0); }
  std::vector<NodesInChunks> fastest() const { return within({}, MetaStream::unlimited); }
  // The smallest of those that are faster than these.
  std::vector<NodesInChunks> faster() const;
  std::vector<NodesInChunks> of(const Plan&) const;

  // The plan, which fits into so many bytes with the smallest parts, with the fastest that fit.
  FoundPlan within(const SearchedStep&, FoundPlan, size_t bytes) const;

 private:
  struct Option {
    int parts = 1;
    double seconds = 0;
    size_t bytes = 0;  // that the backward needs
  };
  // Where so many bytes are live beside each backward; 0: those of no plan.
  std::vector<NodesInChunks> within(const std::map<NodeId, size_t>& live, size_t bytes) const;
  static const Option& best(const std::vector<Option>&, size_t bytes);

  std::map<NodeId, std::vector<Option>> options_;
};

}  // namespace spool
