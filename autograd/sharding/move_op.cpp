#include "spool/autograd/sharding/move_op.h"

#include <algorithm>

#include "spool/autograd/ops/dimensions.h"
#include "spool/autograd/sharding/collectives.h"
#include "spool/kernels/copy.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

struct MoveOp final : Op {
  Move move;
  const RankGroup& group;  // to run; a recorded program may outlive it
  const std::string axis;
  const int ranks, coordinate;
  Spec output;
  Name in_forward = "", in_backward = "";  // of its exchanges
  RankPieces from, to;  // of the tensor that has all of the dimension that a side cuts
  std::string notation;

  MoveOp(const Move& m, const RankGroup& g)
      : move(m), group(g), axis(g.axis()), ranks(g.size()), coordinate(g.coordinate()) {}

  const char* name() const override {
    static constexpr std::array names{"share",          "on_one_rank", "take",      "all_gather",
                                      "reduce_scatter", "all_reduce",  "all_to_all"};
    return names[static_cast<size_t>(forward_of(move))];
  }
  OpKind kind() const override { return OpKind::move; }
  std::string attributes() const override {
    return in_words({{"along", axis},
                     {"ranks", ranks},
                     {"from", words(move.from, from)},
                     {"to", words(move.to, to)}});
  }
  const char* indices() const override { return notation.c_str(); }
  Specs infer(const Specs&) const override { return {output}; }

  Tensor view(const Tensor& x, const Spec& y) const override {
    if (changes_nothing()) return x.reshape(y.shape);
    if (forward_of(move) != Collective::take || !to.are_in_order(x.shape())) return {};
    const Range own = own_elements(x.numel());
    if (!is_aligned(own.size(), x.dtype())) return {};  // on all ranks alike
    return x.reshape({x.numel()}).slice(own).reshape(y.shape);
  }

  void forward(Forward& f) const override {
    const auto [x] = f.inputs<1>();
    const auto [y] = f.outputs<1>();
    if (changes_nothing()) return copy(f, x, y);
    Collectives along = collectives(f, in_forward);
    switch (forward_of(move)) {
      case Collective::nothing:
        return;
      case Collective::on_one_rank:
        if (coordinate == 0) return copy(f, x, y);
        return f.launch(Fill{.out = y});
      case Collective::take:
        if (!is_own_part(x, y)) along.take(x, to, y);
        return;
      case Collective::all_gather:
        return along.gather(x, from, y);
      case Collective::reduce_scatter:
        return along.reduce_scatter(x, to, y);
      case Collective::all_reduce:
        return along.all_reduce(x, y);
      case Collective::all_to_all:
        return along.all_to_all(x, to, from, y);
    }
  }

  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    const Collective what = backward_of(move);
    if (ranks == 1 || what == Collective::nothing) return b.pass(0);
    const auto [dy] = b.grad_outputs<1>();
    Collectives along = collectives(b, in_backward);
    switch (what) {
      case Collective::take:
        return along.take(dy, from, b.grad_input(0));
      case Collective::all_gather:
        return along.gather(dy, to, b.grad_input(0));
      case Collective::reduce_scatter:
        return along.reduce_scatter(dy, from, b.grad_input(0));
      case Collective::all_reduce:
        return along.all_reduce(dy, b.grad_input_over(0, 0));
      default:
        return along.all_to_all(dy, from, to, b.grad_input(0));
    }
  }

 private:
  static std::string words(State s, const RankPieces& pieces) {
    std::string words = in_words(s);
    if (!s.is_cut()) return words;
    for (const int64_t part : pieces.parts) words += " " + std::to_string(part);
    return words;
  }
  Collectives collectives(const OpRun& run, Name exchange) const {
    return {run.stream(), name(), exchange.c_str(), group};
  }
  bool changes_nothing() const { return ranks == 1 || forward_of(move) == Collective::nothing; }
  Range own_elements(int64_t whole) const {
    const int64_t each = whole / ranks;
    return {coordinate * each, (coordinate + 1) * each};
  }
  // Whether y is the view of x that view() gives.
  bool is_own_part(const View& x, const View& y) const {
    return to.are_in_order(x.shape()) &&
           y.data() == x.slice_elements(own_elements(x.numel())).data();
  }
  static void copy(Forward& f, const View& x, const View& y) {
    if (x.data() == y.data()) return;
    f.launch(StridedCopy{.out = y, .in = x, .rows = 1, .width = x.numel()});
  }
};

// How a tensor of the value that has all of dimension d along the axis is divided along it.
RankPieces pieces_along(const WholeValue& v, Sharding s, size_t axis, State cut,
                        const MeshAxes& mesh) {
  if (!cut.is_cut()) return {};
  const int d = cut.dimension();
  const DimensionParts& dimension = v.dimensions[static_cast<size_t>(d)];
  if (d == 0 && dimension.parts.size() == 1) return {};
  s[axis] = State::whole();
  RankPieces pieces{.behind = v.spec.shape.rank() - 1 - d};
  for (const int64_t part : dimension.parts) pieces.parts.push_back(part / ways(s, d, mesh));
  return pieces;
}

// A dimension that is cut before or after is needed whole; the others can be cut into parts.
std::string notation_of(int rank, const Move& m) {
  const auto is_moved = [&](int d) { return m.from.cuts(d) || m.to.cuts(d); };
  int first = 0;
  while (first < rank && !is_moved(first)) ++first;
  std::string in = "n", out = "n";
  if (first == 0 && rank > 0) in = "N", out = "M", first = 1;
  for (int d = first; d < rank; ++d) {
    in += static_cast<char>((is_moved(d) ? 'A' : 'a') + d);
    out += static_cast<char>((is_moved(d) ? 'P' : 'a') + d);
  }
  return in + "->" + out;
}

}  // namespace

std::shared_ptr<const Op> move_op(const WholeValue& v, const Sharding& from, const Move& m,
                                  const MeshRanks& ranks, const std::string& what) {
  const auto axis = static_cast<size_t>(m.axis);
  Sharding to = from;
  to[axis] = m.to;
  const auto op = std::make_shared<MoveOp>(m, ranks.along(axis));
  const auto exchange = [&](Collective c) {
    return sentence(spool::name(c), " along ", op->axis, what.empty() ? "" : ", of ", what);
  };
  op->in_forward = exchange(forward_of(m));
  op->in_backward = exchange(backward_of(m));
  op->output = local_spec(v, to, ranks.mesh());
  op->from = pieces_along(v, from, axis, m.from, ranks.mesh());
  op->to = pieces_along(v, from, axis, m.to, ranks.mesh());
  op->notation = notation_of(v.spec.shape.rank(), m);
  return op;
}

}  // namespace spool
