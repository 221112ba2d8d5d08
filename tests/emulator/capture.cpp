#include "capture.h"

#include <utility>

namespace emulator {
namespace {

// The captures that this thread began; null without any.  No destructor ends it: captures may be
// destroyed after everything else at the end of the thread.
thread_local std::vector<Capture*>* active = nullptr;

void enter(Capture* capture) {
  if (!active) active = new std::vector<Capture*>();
  active->push_back(capture);
}

void leave(const Capture* capture) {
  if (!active) return;
  std::erase(*active, capture);
  if (active->empty()) delete std::exchange(active, nullptr);
}

void merge(Behind& into, const Behind& from) {
  for (const auto& [queue, position] : from) into[queue] = std::max(into[queue], position);
}

}  // namespace

void Graph::add(const Queue* queue, Work work, Behind before) {
  auto part =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.queue == queue; });
  if (part == parts_.end()) part = parts_.insert(part, {.queue = queue, .nodes = {}});
  part->nodes.push_back({.work = std::move(work), .before = std::move(before)});
}

class Graph::Replay {
 public:
  explicit Replay(const std::vector<Part>& parts) {
    for (const Part& part : parts) parts_[part.queue] = &part;
  }

  // Runs the first `count` nodes of a part, each behind all that it is ordered behind.
  void run(const Queue* queue, uint64_t count) {
    const auto part = parts_.find(queue);
    if (part == parts_.end()) return;
    uint64_t& done = done_[queue];
    while (done < count) {
      const Node& node = part->second->nodes[done];
      for (const auto& [other, position] : node.before) {
        if (other != queue) run(other, position);
      }
      ++done;
      node.work();
    }
  }

 private:
  std::map<const Queue*, const Part*> parts_;
  Behind done_;
};

void Graph::replay() const {
  Replay replay(parts_);
  const auto run = [&](const Part& part) { replay.run(part.queue, part.nodes.size()); };
  if (last_first_) {
    std::for_each(parts_.rbegin(), parts_.rend(), run);
  } else {
    std::for_each(parts_.begin(), parts_.end(), run);
  }
  last_first_ = !last_first_;
}

Capture::Capture(const Queue* first) : first_(first), graph_(std::make_unique<Graph>(first)) {
  enter(this);
}

Capture::~Capture() { leave(this); }

void Capture::add(const Queue* queue, Work work) {
  Behind& order = known_[queue];
  graph_->add(queue, std::move(work), order);
  order[queue] = ++last_[queue];
}

Behind Capture::order_of(const Queue* queue) const {
  const auto found = known_.find(queue);
  return found == known_.end() ? Behind() : found->second;
}

void Capture::join(const Queue* queue, const Behind& order) { merge(known_[queue], order); }

std::unique_ptr<Graph> Capture::end(const Queue* queue, cudaError_t& why) {
  recording_ = false;
  leave(this);
  const Behind& order = known_[queue];
  const bool joined = std::all_of(last_.begin(), last_.end(), [&](const auto& last) {
    const auto found = order.find(last.first);
    return found != order.end() && found->second >= last.second;
  });
  why = !valid_           ? cudaErrorStreamCaptureInvalidated
        : queue != first_ ? cudaErrorStreamCaptureUnmatched
        : !joined         ? cudaErrorStreamCaptureUnjoined
                          : cudaSuccess;
  return why == cudaSuccess ? std::move(graph_) : nullptr;
}

bool Capture::any() { return active != nullptr; }

void Capture::invalidate_all() {
  if (!active) return;
  for (Capture* capture : *active) capture->invalidate();
}

}  // namespace emulator
