#pragma once

// Describes the allocations of a rehearsed step in words, for reports.

#include <string>
#include <unordered_map>

#include "spool/planner/report/named_nodes.h"
#include "spool/runtime/memory/allocation_log.h"

namespace spool {

class AllocationWords {
 public:
  // Categories of memory, in the order in which they are drawn: one per purpose, but one per kind
  // of node for activations, and one for memory that copies hold.
  static constexpr size_t activations = 6;  // the first of them
  static constexpr size_t workspace = activations + enumerator_names<NodeKind>.size();
  static constexpr size_t copies = workspace + 1, categories = copies + 1;
  static std::string category_name(size_t category);

  // Both must outlive this.
  AllocationWords(const NamedNodes&, const AllocationHistory&);

  size_t category(const LoggedAllocation&) const;
  // "ln_2" of layer 7, "input gradient of ln_2", "mlp.c_fc.weight".
  LayerName value(const LoggedAllocation&) const;
  // The value that copy number `number` offloads; null if it is not known.
  const LoggedAllocation* offloaded(int64_t number) const;
  // The work until which it is kept: "backward of mlp.c_fc", in the same layer, or "forward of ln_1
  // of layer 8".
  std::string until(const LoggedAllocation&) const;
  // The work for which it was allocated: "backward of mlp.c_fc of layer 7".
  std::string made_for(const LoggedAllocation&) const;

 private:
  // The whole value, given the rows of it that stayed while others were offloaded.
  const LoggedAllocation& whole(const LoggedAllocation&) const;
  bool has_node(const LoggedAllocation&) const;
  std::string work(const TraceContext&, bool with_layer) const;

  const NamedNodes& nodes_;
  std::unordered_map<int64_t, const LoggedAllocation*> offloaded_ = {};
};

}  // namespace spool
