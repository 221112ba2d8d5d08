#pragma once

// Adds up the gradients of parameters that all ranks of a mesh have and whose readers are cut
// (State::shared()), in buckets, as backward completes them; and hands all gradients on.  One
// bucket is added up on the queue of exchanges beside backward: the compute stream waits for it
// where the next one is complete, so the peak of memory does not depend on any speed.

#include <vector>

#include "spool/autograd/gradient_sink.h"
#include "spool/autograd/parameter.h"
#include "spool/autograd/sharding/parameter_part.h"
#include "spool/autograd/sharding/rank_group.h"

namespace spool {

class NeighbourSums final : public GradientSink {
 public:
  // `next` gets each gradient once it is summed, in order; null: nobody does.  One that is to be
  // summed waits until gradients of so many elements are complete.  All outlive it.
  NeighbourSums(const MeshRanks&, Stream&, GradientSink* next, int64_t bucket_elements);
  ~NeighbourSums() override { abandon(); }

  void begin_backward() override;
  void is_final(Parameter&) override;
  void end_backward() override;

  // After a step that failed: waits for what is under way, and frees it.
  void abandon() noexcept;

 private:
  void add_up();
  void begin_along(size_t axis, const std::vector<Parameter*>&);
  void begin(const RankGroup&, const View& gradient, const Name& exchange);
  void begin_packed(const RankGroup&, const std::vector<View>&, const Name& exchange);
  void begin_together(const RankGroup&, const std::vector<View>&, const Name& exchange);
  void retire();
  void pass_on(Parameter& p) {
    if (next_) next_->is_final(p);
  }

  const MeshRanks& ranks_;
  Stream& stream_;
  GradientSink* next_;
  int64_t bucket_elements_;
  std::vector<Parameter*> waiting_ = {};  // since the first that is to be summed
  int64_t elements_ = 0;                  // of them
  // Those that are added up beside backward, and what that takes.
  std::vector<Parameter*> in_flight_ = {};
  std::vector<Begun> begun_ = {};
};

}  // namespace spool
