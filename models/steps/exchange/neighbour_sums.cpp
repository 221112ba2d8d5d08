#include "spool/models/steps/exchange/neighbour_sums.h"

#include <utility>

#include "spool/autograd/sharding/collectives.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr const char* memory_name = "sums of gradients";

bool is_shared(const Parameter& p, size_t axis) {
  return p.part && p.part->stored()[axis] == State::shared();
}

}  // namespace

NeighbourSums::NeighbourSums(const MeshRanks& ranks, Stream& stream, GradientSink* next,
                             int64_t bucket_elements)
    : ranks_(ranks), stream_(stream), next_(next), bucket_elements_(bucket_elements) {}

void NeighbourSums::begin_backward() {
  waiting_.clear();
  elements_ = 0;
  if (next_) next_->begin_backward();
}

void NeighbourSums::is_final(Parameter& p) {
  bool is_summed = false;
  for (size_t a = 0; a < ranks_.mesh().size(); ++a) is_summed = is_summed || is_shared(p, a);
  const bool is_first = waiting_.empty() && in_flight_.empty();
  if (is_first && (!is_summed || !p.grad)) return pass_on(p);
  waiting_.push_back(&p);
  if (p.grad) elements_ += p.grad.numel();
  if (elements_ >= bucket_elements_) add_up();
}

void NeighbourSums::end_backward() {
  add_up();
  retire();
  if (next_) next_->end_backward();
}

void NeighbourSums::add_up() {
  retire();
  for (size_t a = 0; a < ranks_.mesh().size(); ++a) {
    std::vector<Parameter*> some;
    for (Parameter* p : waiting_) {
      if (p->grad && is_shared(*p, a)) some.push_back(p);
    }
    if (!some.empty() && ranks_.mesh()[a] > 1) begin_along(a, some);
  }
  in_flight_ = std::move(waiting_);
  waiting_.clear();
  elements_ = 0;
  if (begun_.empty()) retire();
}

// Large gradients are summed where they are, small ones are gathered together, and others, and
// those that do not divide by the ranks, are summed together.
void NeighbourSums::begin_along(size_t axis, const std::vector<Parameter*>& some) {
  constexpr size_t small = 64 * 1024, large = size_t{4} << 20;  // bytes
  const RankGroup& group = ranks_.along(axis);
  const Name exchange = sentence("sums of gradients along ", group.axis());
  std::vector<View> gathered, packed;
  for (const Parameter* p : some) {
    const View gradient = p->grad.view();
    const bool divides = gradient.numel() % group.size() == 0;
    if (gradient.nbytes() < small) {
      gathered.push_back(gradient);
    } else if (gradient.nbytes() < large || !divides) {
      packed.push_back(gradient);
    } else {
      begin(group, gradient, exchange);
    }
  }
  const bool is_one = packed.size() == 1 && packed.front().numel() % group.size() == 0;
  if (is_one) begin(group, packed.front(), exchange);
  if (!packed.empty() && !is_one) begin_packed(group, packed, exchange);
  if (!gathered.empty()) begin_together(group, gathered, exchange);
}

void NeighbourSums::begin(const RankGroup& group, const View& gradient, const Name& exchange) {
  begun_.push_back(
      Collectives(stream_, memory_name, exchange.c_str(), group).begin_all_reduce(gradient));
}

// In memory of their own, which divides.
void NeighbourSums::begin_packed(const RankGroup& group, const std::vector<View>& all,
                                 const Name& exchange) {
  int64_t elements = 0;
  for (const View& v : all) elements += v.numel();
  const Tensor bucket({Shape{round_up<int64_t>(elements, group.size())}, all.front().dtype()},
                      stream_, {.name = memory_name, .purpose = Purpose::exchange});
  Stream& queue = group.queue().stream();
  group.queue().follow(stream_);
  const auto copy = [&](bool back) {
    int64_t at = 0;
    for (const View& here : all) {
      const View there = bucket.view().slice_elements({at, at + here.numel()});
      queue.copy((back ? here : there).data(), (back ? there : here).data(), here.nbytes());
      at += here.numel();
    }
  };
  copy(/*back=*/false);
  if (const Range rest{elements, bucket.numel()}; rest.size() > 0) {
    launch(Fill{.out = bucket.view().slice_elements(rest)}, queue);
  }
  begin(group, bucket, exchange);
  copy(/*back=*/true);
  begun_.back().output = bucket;
  begun_.back().done = queue.record();
}

void NeighbourSums::begin_together(const RankGroup& group, const std::vector<View>& all,
                                   const Name& exchange) {
  int64_t elements = 0;
  for (const View& v : all) elements += v.numel();
  const Tensor theirs({Shape{group.size(), elements}, all.front().dtype()}, stream_,
                      {.name = memory_name, .purpose = Purpose::exchange});
  const auto begin_of = [&](int rank) { return rank * elements; };
  group.queue().follow(stream_);
  const auto views_of = [&](int rank) {
    std::vector<View> views;
    int64_t at = begin_of(rank);
    for (const View& v : all) {
      views.push_back(theirs.view().slice_elements({at, at + v.numel()}));
      at += v.numel();
    }
    return views;
  };
  group.enqueue_gather(all, views_of, exchange.c_str());
  SumRanks sum{.sent = theirs.dtype()};
  for (int r = 0; r < group.size(); ++r) {
    const View of_rank = theirs.view().slice_elements({begin_of(r), begin_of(r + 1)});
    sum.pieces.add(r == group.coordinate() ? nullptr : of_rank.data());
  }
  int64_t at = 0;
  Stream& queue = group.queue().stream();
  for (const View& v : all) {
    if (sum.slices.full()) {
      launch(sum, queue);
      sum.slices = {};
    }
    sum.slices.add({.out = v, .own = v, .at = at});
    at += v.numel();
  }
  launch(sum, queue);
  begun_.push_back({.output = theirs, .done = queue.record()});
}

void NeighbourSums::retire() {
  for (const Begun& b : begun_) stream_.wait(b.done);
  begun_.clear();
  for (Parameter* p : std::exchange(in_flight_, {})) pass_on(*p);
}

void NeighbourSums::abandon() noexcept {
  try {
    if (!begun_.empty()) ranks_.queue()->stream().synchronize();
  } catch (...) {  // as after a step that failed
  }
  begun_.clear();
  in_flight_.clear();
  waiting_.clear();
}

}  // namespace spool
