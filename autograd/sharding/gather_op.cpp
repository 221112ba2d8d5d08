#include "spool/autograd/sharding/gather_op.h"

#include "spool/autograd/parameter.h"
#include "spool/autograd/sharding/flat_parts.h"

namespace spool {
namespace {

struct GatherOp final : Op {
  Parameter& parameter;
  const FlatParts parts;
  const Spec output;
  const RankGroup& ranks;  // to run; a recorded program may outlive it
  const std::string axis;
  const Name exchange;

  GatherOp(Parameter& p, const FlatParts& f, const Spec& o, const RankGroup& r)
      : parameter(p),
        parts(f),
        output(o),
        ranks(r),
        axis(r.axis()),
        exchange(sentence("all-gather along ", r.axis(), ", of ", p.name)) {}

  const char* name() const override { return "gather"; }
  OpKind kind() const override { return OpKind::gather; }
  std::string attributes() const override {
    return in_words({{"along", axis}, {"ranks", parts.ranks()}});
  }
  const char* indices() const override { return "N->M"; }
  Specs infer(const Specs&) const override { return {output}; }

  Parameter* gathers() const override { return &parameter; }
  Begun begin(const Tensor& own, Stream& stream) const override {
    const Tensor whole(output, stream, {.name = parameter.name});
    const auto of = [&](int rank) {
      std::vector<View> pieces;
      for (int64_t b = 0; b < parts.buckets(); ++b) {
        const Range piece = parts.piece(b, rank);
        if (piece.size() > 0) pieces.push_back(whole.view().slice_elements(piece));
      }
      return pieces;
    };
    std::vector<View> stored;
    int64_t at = 0;
    for (const View& piece : of(ranks.coordinate())) {
      stored.push_back(own.view().slice_elements({at, at + piece.numel()}));
      at += parts.piece_elements();
    }
    Begun exchanged = ranks.begin_gather(stored, of, stream, exchange.c_str());
    exchanged.output = whole;
    return exchanged;
  }

  void forward(Forward&) const override {}  // begin() has done it
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward&) const override {}  // its output's gradient is the parameter's
};

}  // namespace

Begun Op::begin(const Tensor&, Stream&) const { return {}; }

std::shared_ptr<const Op> gather_op(Parameter& p, const FlatParts& parts, const Spec& gathered,
                                    const RankGroup& ranks) {
  return std::make_shared<const GatherOp>(p, parts, gathered, ranks);
}

}  // namespace spool
