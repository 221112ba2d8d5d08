#include "spool/models/steps/exchange/neighbour_sums.h"

#include "spool/autograd/sharding/collectives.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

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
  if (waiting_.empty() && (!is_summed || !p.grad)) return pass_on(p);
  waiting_.push_back(&p);
  if (p.grad) elements_ += p.grad.numel();
  if (elements_ >= bucket_elements_) add_up();
}

void NeighbourSums::end_backward() {
  add_up();
  if (next_) next_->end_backward();
}

void NeighbourSums::add_up() {
  for (size_t a = 0; a < ranks_.mesh().size(); ++a) {
    std::vector<Parameter*> some;
    for (Parameter* p : waiting_) {
      if (p->grad && is_shared(*p, a)) some.push_back(p);
    }
    if (!some.empty() && ranks_.mesh()[a] > 1) add_up_along(a, some);
  }
  for (Parameter* p : waiting_) pass_on(*p);
  waiting_.clear();
  elements_ = 0;
}

// Large gradients are summed where they are; others in one exchange, in memory of their own, which
// divides.
void NeighbourSums::add_up_along(size_t axis, const std::vector<Parameter*>& some) {
  constexpr int64_t large = int64_t{1} << 20;
  constexpr const char* name = "sums of gradients";
  const Name exchange = sentence("sums of gradients along ", ranks_.along(axis).axis());
  Collectives along(stream_, name, exchange.c_str(), ranks_.along(axis));
  std::vector<Tensor> small;
  int64_t elements = 0;
  for (const Parameter* p : some) {
    if (p->grad.numel() >= large && p->grad.numel() % ranks_.mesh()[axis] == 0) {
      along.all_reduce(p->grad, p->grad);
    } else {
      small.push_back(p->grad);
      elements += p->grad.numel();
    }
  }
  if (small.empty()) return;
  if (small.size() == 1) return along.all_reduce(small.front(), small.front());
  const int ranks = ranks_.mesh()[axis];
  const Tensor bucket({Shape{(elements + ranks - 1) / ranks * ranks}, small.front().dtype()},
                      stream_, {.name = name, .purpose = Purpose::exchange});
  const auto copy = [&](bool back) {
    int64_t at = 0;
    for (const Tensor& t : small) {
      const View there = bucket.view().slice_elements({at, at + t.numel()}), here = t.view();
      stream_.copy((back ? here : there).data(), (back ? there : here).data(), here.nbytes());
      at += t.numel();
    }
  };
  copy(/*back=*/false);
  if (const Range rest{elements, bucket.numel()}; rest.size() > 0) {
    launch(Fill{.out = bucket.view().slice_elements(rest)}, stream_);
  }
  along.all_reduce(bucket, bucket);
  copy(/*back=*/true);
}

}  // namespace spool
