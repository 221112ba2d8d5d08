#include "spool/planner/report/allocation_words.h"

#include <algorithm>
#include <array>

#include "spool/autograd/survey.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

constexpr std::array before_activations{Purpose::parameter, Purpose::frozen, Purpose::gradient,
                                        Purpose::optimizer, Purpose::input,  Purpose::exchange};
static_assert(before_activations.size() == AllocationWords::activations);

NodeId node_of(const LoggedAllocation& a) { return static_cast<NodeId>(a.born_in.node); }

// Only names of parameters have dots.
bool is_of_parameter(const LoggedAllocation& a) {
  return std::string_view(a.label.name).find('.') != std::string_view::npos;
}

bool is_recomputed(const TraceContext& work) {
  return std::string_view(work.task) == name(Phase::recompute);
}

}  // namespace

std::string AllocationWords::category_name(size_t category) {
  if (category < activations) return name(before_activations.at(category));
  if (category == workspace) return name(Purpose::workspace);
  if (category == copies) return "copies in flight";
  const auto kind = static_cast<NodeKind>(category - activations);
  return sentence(name(Purpose::activation), ": ", name(kind));
}

AllocationWords::AllocationWords(const NamedNodes& nodes, const AllocationHistory& history)
    : nodes_(nodes) {
  for (const LoggedAllocation& a : history.all) {
    if (a.offloaded != LoggedAllocation::never) offloaded_[static_cast<int64_t>(a.transfer)] = &a;
  }
}

const LoggedAllocation* AllocationWords::offloaded(int64_t number) const {
  const auto at = offloaded_.find(number);
  return at == offloaded_.end() ? nullptr : at->second;
}

const LoggedAllocation& AllocationWords::whole(const LoggedAllocation& a) const {
  const LoggedAllocation* original =
      a.is_rest ? offloaded(static_cast<int64_t>(a.transfer)) : nullptr;
  return original ? *original : a;
}

bool AllocationWords::has_node(const LoggedAllocation& a) const {
  return a.fetched < 0 && a.born_in.node >= 0 && nodes_.names.contains(node_of(a));
}

size_t AllocationWords::category(const LoggedAllocation& part) const {
  const LoggedAllocation& a = whole(part);
  const auto at = std::ranges::find(before_activations, a.label.purpose);
  if (at != before_activations.end()) return static_cast<size_t>(at - before_activations.begin());
  if (a.label.purpose == Purpose::workspace) return workspace;
  if (a.fetched >= 0) return copies;
  const NodeKind kind = has_node(a) ? nodes_.kinds[node_of(a)] : NodeKind::other;
  return activations + static_cast<size_t>(kind);
}

LayerName AllocationWords::value(const LoggedAllocation& part) const {
  const LoggedAllocation& a = whole(part);
  if (a.fetched >= 0) {
    const LoggedAllocation* original = offloaded(a.fetched);
    return original ? value(*original) : LayerName{a.label.name.c_str()};
  }
  const bool is_gradient = a.label.purpose == Purpose::gradient;
  const bool is_of_node = a.label.purpose == Purpose::activation ||
                          a.label.purpose == Purpose::workspace ||
                          (is_gradient && !is_of_parameter(a));
  if (!is_of_node || !has_node(a)) return layer_name(a.label.name);
  const std::string& of = nodes_.names[node_of(a)];
  const int layer = nodes_.layers[node_of(a)];
  if (is_gradient) return {"input gradient of " + of, layer};
  return {is_recomputed(a.born_in) ? of + ", recomputed" : of, layer};
}

std::string AllocationWords::work(const TraceContext& work, bool with_layer) const {
  if (!work) return "beginning of the step";
  if (work.node < 0) return work.task;
  const auto n = static_cast<NodeId>(work.node);
  return sentence(is_recomputed(work) ? "recomputing" : sentence(work.task, " of"), " ",
                  with_layer ? in_words(nodes_, n) : nodes_.names[n]);
}

std::string AllocationWords::until(const LoggedAllocation& a) const {
  if (a.death == LoggedAllocation::never) return "end of the step";
  const bool is_of_node = a.died_in && a.died_in.node >= 0;
  const int layer = is_of_node ? nodes_.layers[static_cast<NodeId>(a.died_in.node)] : -1;
  return work(a.died_in, layer != value(a).layer);
}

std::string AllocationWords::made_for(const LoggedAllocation& a) const {
  if (a.fetched >= 0) return sentence("copy of ", a.label.name);
  return work(a.born_in, /*with_layer=*/true);
}

}  // namespace spool
