#pragma once

// Chooses what changes the order of a run's sums: the rows of its loss, and its regions in chunks.
// It does so by the nominal clock (planner/machines/machine.h), so that losses do not depend on
// what was measured.  Workspaces of a cpu's threads are among the bytes of a step: chunks are
// chosen for those of eight threads, or of fewer where a budget has no room for so many.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "spool/models/steps/step.h"
#include "spool/models/steps/step_request.h"
#include "spool/planner/search/search.h"

namespace spool {

// The threads of a cpu; 0 for another device.
int threads_of(const Machine&);
// The same cpu with another number of threads.
Machine with_threads(Machine, int threads);

// The numbers of threads of a cpu to choose for, one after the other until one has a plan: eight,
// four and two, as far as they are more than the cpu's own, which come last.
std::vector<int> threads_to_choose_for(int own);

// The chunks of a plan that was made from this policy.
StepChunks chunks_of(const Plan&, int64_t loss_rows, const Policy&);

// Whether the machine's times are those of the nominal clock.
bool has_nominal_clock(const Machine&);

// The levers of a request, and the same where what is recomputed may be chosen, too.
Levers levers_of(const StepDescription&, const StepRequest&, const Machine&);
Levers free_levers(const StepDescription&, const StepRequest&, const Levers&);
// The levers that choose everything but chunks, which stay those of the plan.
Levers with_chunks_of(const FoundPlan&, Levers);

class ChunkChoice {
 public:
  using SearchOn = std::function<std::unique_ptr<Search>(const Machine&)>;
  // `search_on` begins a search by a machine's clock.  If chunks are not free, a choice is for the
  // machine's own threads.
  ChunkChoice(const Machine&, bool is_free, SearchOn search_on);

  // The numbers of threads to choose for, one after the other until the limit has a plan: the
  // largest first, none below the machine's own, which is the last.
  const std::vector<int>& threads() const { return threads_; }

  // The fastest plan within the limit by the nominal clock, with the workspaces of these threads.
  // It has no chunks where keeping everything fits.
  SearchResult plan(int threads, size_t limit);

  // The search for the machine's own threads.
  Search& own() { return search(threads_.back()); }

 private:
  Search& search(int threads);

  Machine nominal_;
  bool is_free_;
  SearchOn search_on_;
  std::vector<int> threads_;
  std::map<int, std::unique_ptr<Search>> searches_;  // by threads
};

}  // namespace spool
