// Regions in chunks, in forward: their ops are recorded and not run, until the last.

#include "spool/autograd/chunks/deferred.h"

#include <algorithm>

#include "spool/autograd/homes.h"
#include "spool/autograd/survey.h"
#include "spool/autograd/tape.h"

namespace spool {

void Deferred::hold(const Few<ValueId>& ids, const Few<Tensor>& in) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] && held_.try_emplace(ids[i], in[i]).second) order_.push_back(ids[i]);
  }
}

std::shared_ptr<const DeferredTensor> Deferred::promise(ValueId v, const Spec& spec) {
  return promises_[v] = std::make_shared<DeferredTensor>(DeferredTensor{.spec = spec});
}

void Deferred::keep_promise(ValueId v, const Tensor& t) { promises_.at(v)->tensor = t; }

void Deferred::clear() {
  held_.clear();
  order_.clear();
  promises_.clear();
}

void Deferred::restore(size_t mark, ValueId next_value) {
  for (; order_.size() > mark; order_.pop_back()) held_.erase(order_.back());
  std::erase_if(promises_, [&](const auto& promise) { return promise.first >= next_value; });
}

const Tensor& Var::tensor() const {
  Tape& t = tape();
  t.observe(id_);
  if (!is_readable()) t.fail_deferred(id_, "its tensor was asked for");
  return tensor_if_computed();
}

void Tape::fail_deferred(ValueId v, const std::string& what) const {
  check(options_.runs, what, ": this tape records ops and does not run them, so value ", v,
        " has no numbers; what is recorded, as for several ranks, must not read any");
  regions_.check_not_cut_short();  // that would be the reason
  check(program_.values.contains(v), what, ": value ", v,
        " was computed in a region that runs in chunks, and is not one of its leaves");
  const NodeId producer = program_.values[v].producer;
  const std::string value =
      sentence(what, ": value ", v, ", ", program_.values[v].spec, ", is computed by ",
               program_.producer_name(v), " (node ", producer, ") in a region ");
  for (const TapeRegion& r : program_.regions) {
    if (r.chunks == 1 || producer < r.first || producer > r.last) continue;
    fail(ErrorKind::invalid, value, "of nodes ", r.first, " to ", r.last,
         ", which runs in chunks; list the value among its leaves, which are what is read outside");
  }
  fail(ErrorKind::invalid, value, "that runs in chunks and has not ended yet");
}

// Only the region's own nodes may read what a region in chunks has yet to compute.
void Tape::check_readable(NodeId id, ValueId v) const {
  const RegionId open = regions_.open_chunked();
  if (open >= 0 && program_.values[v].producer >= program_.regions[open].first) return;
  fail_deferred(v, sentence(program_.nodes[id].op->name(), " (node ", id, ")"));
}

Few<Var> Tape::defer(NodeId id, RegionId r, const Few<Tensor>& in) {
  const SurveyScope surveyed(options_.survey, stream_, Phase::forward, id, *program_.nodes[id].op);
  if (options_.offloader) options_.offloader->before_forward(id);
  const Few<ValueId>& outputs = program_.nodes[id].outputs;
  deferred_.hold(program_.nodes[id].inputs, in);
  Few<Var> vars;
  for (const ValueId v : outputs) {
    vars.push_back({*this, v, deferred_.promise(v, program_.values[v].spec)});
  }
  if (regions_.ends_at(r, id)) complete(r, id);
  return vars;
}

// Runs a region whose last node has been recorded.
void Tape::complete(RegionId r, NodeId last) {
  if (options_.recording) check_scopes_ended(r, last);
  const ChunkedRegion& region = chunks_.prepare(r, last);
  Tensors tensors = deferred_.held();
  for (NodeId id = region.first; id <= last; ++id) {
    if (!region.cut.has(id)) run_once(id, tensors);
  }
  if (!region.leaves.empty()) {
    tensors.merge(chunks_.compute(r, region.leaves, tensors, /*in_forward=*/true));
  }
  for (NodeId id = region.first; id <= last; ++id) {
    program_.nodes[id].region = region.cut.has(id) ? r : program_.regions[r].parent;
  }
  if (options_.recording) save(r, region, tensors);
  regions_.close_at(last);
  for (const ValueId v : program_.regions[r].leaves) deferred_.keep_promise(v, tensors.at(v));
  deferred_.clear();
}

void Tape::check_scopes_ended(RegionId r, NodeId last) const {
  const NodeId first = program_.regions[r].first;
  for (const ScopeId open : program_.open_scopes) {
    const TapeScope& scope = program_.scopes[open];
    check(!scope.options.recompute || scope.first <= first, "plan: the region of nodes ", first,
          " to ", last, ", which runs in chunks, ends inside the checkpoint that begins at node ",
          scope.first, "; let it end before the checkpoint begins, or at a later node than it");
  }
}

void Tape::save(RegionId r, const ChunkedRegion& region, const Tensors& tensors) {
  const IdTable<ValueId, Placement> placement = options_.plan.placement;
  ignore_inner_placements(region, program_.regions[r].leaves);
  try {
    regions_.save_chunked(r, tensors);
  } catch (...) {
    options_.plan.placement = placement;
    throw;
  }
}

// Placements apply to leaves alone: other values live in a chunk, or, if computed once, as long as
// they are needed.  What is computed once is not recomputed.
void Tape::ignore_inner_placements(const ChunkedRegion& region,
                                   const std::vector<ValueId>& leaves) {
  IdTable<ValueId, Placement>& placement = options_.plan.placement;
  for (NodeId id = region.first; id <= region.last; ++id) {
    const bool is_once = !region.cut.has(id);
    for (const ValueId v : program_.nodes[id].outputs) {
      if (!placement.contains(v)) continue;
      const bool is_leaf = std::ranges::binary_search(leaves, v);
      const bool is_obeyed = is_leaf && !(is_once && placement[v] == Placement::recompute);
      if (!is_obeyed) placement[v] = Placement::keep;
    }
  }
}

void Tape::run_once(NodeId id, Tensors& tensors) {
  const Node& n = program_.nodes[id];
  const SurveyScope surveyed(options_.survey, stream_, Phase::forward, id, *n.op);
  Few<Tensor> in;
  for (const ValueId v : n.inputs) {
    const Parameter* const parameter = program_.values[v].parameter;
    in.push_back(parameter ? data_of(*parameter) : tensors.at(v));
  }
  const Few<Tensor> out = runner_.forward(id, in);
  for (size_t i = 0; i < out.size(); ++i) tensors[n.outputs[i]] = out[i];
}

}  // namespace spool
