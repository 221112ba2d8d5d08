#pragma once

// The work that streams captured as a graph, and the order of its parts.
//
// The rules of a capture are CUDA's (CUDA C++ Programming Guide, CUDA graphs, stream capture): a
// captured stream may not wait for an event that was recorded before the capture, or in another
// one; the host waits for none of it, nor for an event that was recorded in it, even when it has
// ended; the thread that began it neither takes nor gives back memory nor asks for any event, as in
// cudaStreamCaptureModeThreadLocal; and when it ends, the work of every stream in it comes
// before the end of the stream that it began with.  A call that breaks a rule fails, and so does
// the end of the capture.
//
// A graph replays the work of its first stream as early as that work's order allows, and that of
// the others as late, or the other way round, by turns: an event that is missing gives wrong
// numbers.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime_api.h"

struct Queue;

namespace emulator {

using Work = std::function<void()>;

// The number of each stream's pieces of work that must come before something.
using Behind = std::map<const Queue*, uint64_t>;

class Graph {
 public:
  explicit Graph(const Queue* first) { parts_.push_back({.queue = first, .nodes = {}}); }
  // Adds work of the queue, which comes behind what the order says.
  void add(const Queue* queue, Work work, Behind before);
  void replay() const;

 private:
  struct Node {
    Work work;
    Behind before;
  };
  struct Part {  // of one stream
    const Queue* queue;
    std::vector<Node> nodes;
  };
  class Replay;
  std::vector<Part> parts_;  // that of the stream which the capture began with is first
  mutable bool last_first_ = false;
};

class Capture {
 public:
  explicit Capture(const Queue* first);  // on one thread, with end()
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  bool recording() const { return recording_; }
  void add(const Queue*, Work);
  // The order of an event that this queue records now.
  Behind order_of(const Queue*) const;
  // The queue's next work comes behind an event of this order.
  void join(const Queue*, const Behind&);
  // Marks the capture as failed.
  void invalidate() { valid_ = false; }
  // Ends the capture; null if it failed, with the reason.
  std::unique_ptr<Graph> end(const Queue*, cudaError_t& why);

  // For a call that no capture of this thread allows: whether there is one.
  static bool any();
  static void invalidate_all();

 private:
  const Queue* first_;
  std::unique_ptr<Graph> graph_;
  std::map<const Queue*, Behind> known_;
  Behind last_;
  bool recording_ = true, valid_ = true;
};

}  // namespace emulator
