// Public: one of the headers of docs/public-headers.md.
#pragma once

// A part of an op: the same op, applied to parts of its inputs, whose outputs are parts.  Chunks
// apply parts one after another, each of a number of ranks applies one of them, and check_op()
// applies all and compares them with the whole.

#include <memory>
#include <string>

#include "spool/autograd/op.h"

namespace spool {

// What the parts of an op exchange along indices that its notation marks with *.
class PartExchange {
 public:
  virtual ~PartExchange() = default;
  // Gives each part what all have, one after another in the order of the parts: `all` has as many
  // times the elements of `own` as there are parts along the index.  All parts call it alike.
  virtual void all_gather(char index, const View& own, const View& all, Stream&) = 0;
};

// What a part has of an index of the notation.
struct PartOfIndex {
  char index = ' ';
  Range range = {};        // of the index, in the whole
  int64_t extent = 0;      // in the whole
  int number = 0, of = 1;  // which part this is, counted from 0, of how many
};

// Where a part of an op is in the whole.
struct Place {
  NodeId node = -1;             // on the tape of the whole
  Few<PartOfIndex> parts = {};  // of each index that is cut
  // The first dimension of the whole tensors that the first of these indices leads; 0: it leads
  // none.
  int64_t leading = 0;
  PartExchange* exchange = nullptr;  // not needed without *; outlives the part

  // Null: the index is not cut.
  const PartOfIndex* part(char index) const {
    for (const PartOfIndex& p : parts) {
      if (p.index == index) return &p;
    }
    return nullptr;
  }
  // That of a part of this part: of some of the index, counted in what this part has of it.
  // `leading` as above, of this part's tensors.
  Place of_part(const PartOfIndex&, int64_t leading) const;
};

class PartOfOp final : public Op {
 public:
  // `outputs` are the specs of the part's own.  Of a part of an op it is a part, too.
  PartOfOp(std::shared_ptr<const Op>, const Specs& outputs, const Place&);

  const char* name() const override { return op_->name(); }
  OpKind kind() const override { return op_->kind(); }
  std::string attributes() const override { return op_->attributes(); }
  const char* indices() const override { return op_->indices(); }
  Specs infer(const Specs&) const override { return outputs_; }
  void forward(Forward& f) const override { op_->forward(f); }
  Tensor view(const Tensor& x, const Spec& y) const override { return op_->view(x, y); }
  Slots saves(const Needs& needs) const override { return op_->saves(needs); }
  void backward(Backward& b) const override { op_->backward(b); }
  bool differentiable(int i) const override { return op_->differentiable(i); }
  bool reads_stored_types() const override { return op_->reads_stored_types(); }
  bool recomputable() const override { return op_->recomputable(); }
  bool writes(int i) const override { return op_->writes(i); }
  bool needs_loss_scale() const override { return op_->needs_loss_scale(); }
  int64_t max_chunks(const Specs& in) const override { return op_->max_chunks(in); }
  int64_t max_parts(const Specs& in) const override { return op_->max_parts(in); }
  const Place* place() const override { return &place_; }

 private:
  std::shared_ptr<const Op> op_;
  Specs outputs_;
  Place place_;
};

}  // namespace spool
