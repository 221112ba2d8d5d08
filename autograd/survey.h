// Public: one of the headers of docs/public-headers.md.
#pragma once

// A survey lists where a rehearsed step's seconds and bytes go, node by node.  The tapes of a step
// on the meta device fill it, and the step itself adds the optimizer's update.
//
// Repetitions that the stream leaves out (Stream::repeat) are listed as one work, with the seconds
// of all; repeat() tells the survey.
//
// Seconds are those of the meta stream's clock, without waits for other streams; they add up:
// all work's + `other_seconds` + waits = the time of the step.

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "spool/autograd/engine/id_table.h"
#include "spool/autograd/program.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/names.h"

namespace spool {

enum class Phase : uint8_t { forward, recompute, backward, optimizer };
template <>
inline constexpr std::array enumerator_names<Phase>{"forward", "recompute", "backward",
                                                    "optimizer"};

// The work of one node in one phase.  Recomputation during a node's backward is work of its own.
struct SurveyedWork {
  Phase phase = Phase::forward;
  NodeId node = -1;        // -1: of no node, such as the optimizer's
  const char* op = "";     // the name of the node's op
  NodeId reader = -1;      // recompute: the node whose backward needs it
  int micro_batch = 0;     // counted from 0
  double begin = 0;        // seconds since the stream's start
  double seconds = 0;      // its kernels and copies on the compute stream, without waits
  size_t live_before = 0;  // bytes of the device live when it began
  size_t live = 0;         // peak of the device's live bytes during it
  bool is_nested = false;  // it is part of another work, as that of a chunk is
};

// A node, and a value that it saves or reads.
struct ValueUse {
  ValueId value = -1;
  NodeId node = -1;
};

struct SurveyedValue {
  size_t bytes = 0;
  NodeId first_saved = -1;  // the node after which it was first saved; -1: never
  // The node during or just before whose backward its saved tensor was first read; -1: never.
  NodeId first_read = -1;
};

struct Survey {
  std::vector<SurveyedWork> works = {};  // in the order in which they began
  double other_seconds = 0;              // of work outside of all nodes, such as uploads
  int micro_batches = 0;                 // number of tapes so far

  // What the first micro-batch did; the others do the same.
  IdTable<ValueId, SurveyedValue> values = {};
  std::vector<ValueUse> saves = {};  // the value is saved after the node's forward
  std::vector<ValueUse> reads = {};  // the node's backward, or recomputation for it, reads it

  // The work with the most live bytes, the first of several; null if there is none.
  const SurveyedWork* peak() const;
  // When the tape of the first micro-batch came to each node in this phase, forward or backward.
  // For nodes of a region in chunks: in forward before all of its work; in backward before it for
  // the last node, and after it for the others.
  IdTable<NodeId, double> begins(Phase) const;

  // Begins to account what the stream does.  The first tape calls it, unless its step did before.
  void start(Stream&);
  // Called by tapes.
  void add_tape(Stream&);
  void add_save(ValueId, size_t bytes);
  void add_read(ValueId);
  void add_first_read(ValueId);
  // To undo an op that fails: what it saved is forgotten, and its seconds become those of no node.
  struct Mark {
    size_t works = 0, saves = 0;
  };
  Mark mark() const { return {works.size(), saves.size()}; }
  void undo(const Mark&);
  // The works [first, last), which have ended, stand for `times` more of them, which the stream has
  // left out but counted.  What the stream did meanwhile outside of them counts for the work in
  // progress.
  void repeat(size_t first, size_t last, size_t times);

 private:
  friend class SurveyScope;
  bool is_first_tape() const { return micro_batches == 1; }
  NodeId reader() const;
  // Adds what the stream has done since the last call to the work in progress.
  void account(MetaStream&);

  bool started_ = false;
  size_t current_ = 0;     // the work in progress, as an index + 1; 0: none
  double busy_until_ = 0;  // busy seconds of the stream that are accounted for
  // Bytes that were live when the stream was last accounted for, and the most outside of all work
  // since work last began.
  size_t live_at_end_ = 0, live_between_ = 0;
};

// Stream::repeat() that tells the survey, which may be null, of the repetitions left out.
void repeat(Survey*, Stream&, size_t count, const std::function<void(size_t)>& work);

// In words: "the backward of layer_norm (node 12)".
std::string description(const SurveyedWork&);

// Accounts what the stream does during its lifetime to one piece of work; nested ones are accounted
// apart.  Tells the arena's log, if it has one, for which work memory is allocated.  Does nothing
// without a survey and a log.
class SurveyScope {
 public:
  SurveyScope(Survey* survey, Stream& stream, Phase phase)
      : survey_(survey), log_(stream.arena().log()) {
    if (survey_ || log_) [[unlikely]]
      begin(stream, phase, /*node=*/-1, /*op=*/"");
  }
  SurveyScope(Survey* survey, Stream& stream, Phase phase, NodeId node, const Op& op)
      : survey_(survey), log_(stream.arena().log()) {
    if (survey_ || log_) [[unlikely]]
      begin(stream, phase, node, op.name());
  }
  ~SurveyScope() {
    if (survey_ || log_) [[unlikely]]
      end();
  }
  SurveyScope(const SurveyScope&) = delete;
  SurveyScope& operator=(const SurveyScope&) = delete;

 private:
  void begin(Stream&, Phase, NodeId, const char* op);
  void end();

  Survey* survey_;
  AllocationLog* log_;
  TraceContext before_ = {};
  MetaStream* stream_ = nullptr;
  size_t outer_ = 0;
};

}  // namespace spool
