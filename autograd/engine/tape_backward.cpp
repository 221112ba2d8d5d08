// Backward along the tape, node by node from the last to the first.

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "spool/autograd/engine/final_gradients.h"
#include "spool/autograd/fingerprint.h"
#include "spool/autograd/homes.h"
#include "spool/autograd/survey.h"
#include "spool/autograd/tape.h"
#include "spool/runtime/log.h"

namespace spool {

void Tape::backward(const std::vector<Root>& roots) {
  check(options_.recording, "backward: this tape does not record");
  check(!backward_began_, "backward: it was called on this tape before; record a new tape");
  check_not_applying("backward");
  check_complete(options_.plan, program_);
  regions_.check_ends();
  backward_began_ = true;
  if (idle_checkpoint_ >= 0) [[unlikely]]
    log_idle_checkpoints();
  try {
    for (const Root& root : roots) begin_at(root);
    walk_backward();
  } catch (...) {
    saving_.free_all();
    gradients_.free_all();
    throw;
  }
}

// Logs once for all tapes that look alike, as those of a run's steps do.
void Tape::log_idle_checkpoints() const {
  static std::mutex mutex;
  static std::set<std::tuple<size_t, size_t, NodeId, NodeId, const char*>> seen;
  const TapeScope& first = program_.scopes[idle_checkpoint_];
  if (first.last < first.first) return;
  {
    const std::lock_guard lock(mutex);
    const char* const op = program_.nodes[first.first].op->name();
    const bool is_new =
        seen.emplace(program_.nodes.size(), program_.scopes.size(), first.first, first.last, op)
            .second;
    if (!is_new) return;
  }
  const std::vector<std::string> all = idle_checkpoints(program_);
  if (all.empty()) return;
  const size_t more = all.size() - 1;
  logger().warn("{}{}", all.front(), more ? sentence("; so do ", more, " more checkpoints") : "");
}

void Tape::begin_at(const Root& root) {
  const ValueId id = id_of(root.y);
  const Value& y = program_.values[id];
  observe(id);
  check(!y.parameter, "backward: a root is a parameter, ", y.spec,
        "; begin at what an op computes of it");
  if (!root.y.is_readable()) fail_deferred(id, "backward: a root");
  check(y.needs_grad, "backward: root ", y.spec, " (", program_.producer_name(id),
        ") depends on nothing that needs a gradient; make a parameter trainable, or an input one "
        "that needs it");
  check(root.dy || y.spec.shape.numel() == 1, "backward: root ", y.spec,
        " has more than one element; give its gradient");
  check(!root.dy || root.dy.spec() == y.spec, "backward: a gradient of ", root.dy.spec(),
        " for a root of ", y.spec);
  check_stream(root.dy, "backward: the gradient of a root");
  gradients_.begin_at(id, root.dy);
}

void Tape::walk_backward() {
  regions_.close_all();
  saving_.free_unread();
  if (options_.offloader) options_.offloader->begin_backward(program_.nodes.next_id());
  if (homes_) homes_->begin_backward(program_.nodes.next_id());
  FinalGradients final_gradients(program_, options_.sink);
  for (NodeId id = program_.nodes.next_id(); id-- > 0;) {
    const SurveyScope surveyed(options_.work_survey(), stream_, Phase::backward,
                               options_.whole_node(id), *program_.nodes[id].op);
    if (homes_) homes_->before_backward(id);
    if (options_.offloader) options_.offloader->before_backward(id);
    if (id > 0) regions_.prefetch_for(id - 1);
    const RegionId chunked = regions_.chunked_ending_at(id);
    if (chunked >= 0) differentiate_chunks(chunked);
    if (program_.chunked_region(id) < 0) differentiate(id);
    regions_.leave_at(id);
    // What backward reads next is exchanged before gradients, for which nothing waits.
    if (id > 0 && program_.nodes[id - 1].op->kind() == OpKind::move) continue;
    if (final_gradients.has_any(id)) regions_.gather_for(id - 1, /*ahead=*/2);
    final_gradients.after_backward(id);
  }
  final_gradients.end();
  if (homes_) std::exchange(homes_, nullptr)->end_tape();  // before any update at the end
  if (options_.offloader) options_.offloader->end_backward();
}

void Tape::differentiate(NodeId id) {
  const Few<ValueId>& outputs = program_.nodes[id].outputs;
  if (std::ranges::any_of(outputs, [&](ValueId v) { return bool(gradients_.of(v)); })) {
    regions_.recompute_for(id);
    runner_.backward(id, regions_);
  }
  regions_.release_saved(id);
  for (const ValueId v : outputs) gradients_.free(v);
}

void Tape::differentiate_chunks(RegionId r) {
  if (chunks_.has_gradient(r)) {
    const Tensors inputs = regions_.read_inputs(r);
    chunks_.backward(r, inputs);
  }
  regions_.leave_chunked(r);
  for (const ValueId leaf : chunks_.region(r).leaves) gradients_.free(leaf);
}

}  // namespace spool
