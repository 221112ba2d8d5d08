#include "spool/models/steps/exchange/gradient_exchange.h"

#include <algorithm>

#include "spool/kernels/reduce.h"
#include "spool/kernels/sum_ranks.h"

namespace spool {
namespace {

Message message(int peer, const View& v) { return {peer, v.data(), v.nbytes()}; }

View elements_of(const View& whole, Range elements) {
  return whole ? whole.slice_elements(elements) : whole;
}

Range stretch(int64_t begin, int64_t size) { return {begin, begin + size}; }

}  // namespace

GradientExchange::GradientExchange(std::vector<Parameter*> parameters, Stream& stream, int stage,
                                   int buckets_in_flight)
    : compute_(stream),
      ranks_(*stream.ranks()),
      queue_(stream.side_stream()),
      stage_(stage),
      max_in_flight_(static_cast<size_t>(buckets_in_flight)),
      parameters_(std::move(parameters)),
      pieces_(parameters_, ranks_.size()),
      own_(pieces_.own_slices(ranks_.rank())),
      first_own_(parameters_.size(), own_.size()),
      sums_(static_cast<size_t>(pieces_.buckets())),
      is_summed_(own_.size()) {
  for (size_t i = own_.size(); i-- > 0;) first_own_[own_[i].parameter] = i;
}

View GradientExchange::gradient(size_t parameter, Range elements) const {
  if (stage_ != 2) return elements_of(parameters_[parameter]->grad, elements);
  size_t i = first_own_[parameter];
  while (i < own_.size() && own_[i].elements.end <= elements.begin) ++i;
  if (i == own_.size() || !is_summed_[i]) return {};
  const int64_t piece = pieces_.piece_elements();
  const int64_t at = own_[i].at + elements.begin - own_[i].elements.begin;
  const Tensor& sums = sums_[static_cast<size_t>(at / piece)];
  return sums.view().slice_elements(stretch(at % piece, elements.size()));
}

void GradientExchange::open_queue() {
  queue_->trace_with(compute_, TraceLane::exchange);
  queue_->wait(compute_.record());
}

void GradientExchange::begin_backward() {
  missing_.assign(sums_.size(), 0);
  kept_.clear();
  for (const Parameter* p : parameters_) kept_.push_back(p->data.numel());
  for (int64_t b = 0; b < pieces_.buckets(); ++b) {
    for (int r = 0; r < ranks(); ++r) {
      missing_[static_cast<size_t>(b)] += std::ssize(pieces_.slices(b, r));
    }
  }
  next_ = 0;
}

// A bucket goes when all its gradients are final and those before it have gone.
void GradientExchange::is_final(Parameter& p) {
  for (int64_t b = next_; b < pieces_.buckets(); ++b) {
    for (int r = 0; r < ranks(); ++r) {
      for (const Slice& s : pieces_.slices(b, r)) {
        if (&parameter_of(s) == &p) --missing_[static_cast<size_t>(b)];
      }
    }
  }
  while (next_ < pieces_.buckets() && missing_[static_cast<size_t>(next_)] == 0) {
    hand_over(next_++);
  }
}

void GradientExchange::end_backward() {
  while (next_ < pieces_.buckets()) hand_over(next_++);
  while (!flights_.empty()) retire();
  if (stage_ != 0) return;
  enqueue_pieces("gradients back", {0, pieces_.buckets()},
                 [](const Parameter& p) { return View(p.grad); });
  compute_.wait(queue_->record());
}

void GradientExchange::hand_over(int64_t bucket) {
  if (flights_.size() == max_in_flight_) retire();
  const int64_t piece = pieces_.piece_elements();
  const DType type = accumulator(parameters_.front()->data.dtype());
  Tensor& sums = sums_[static_cast<size_t>(bucket)];
  if (stage_ == 2 && !sums) {
    sums = Tensor({Shape{piece}, type}, compute_,
                  {.name = "own gradients", .purpose = Purpose::gradient});
  }
  Flight flight{.bucket = bucket};
  if (ranks() > 1) {
    flight.others = Tensor({Shape{ranks() - 1, piece}, type}, compute_,
                           {.name = "gradients of others", .purpose = Purpose::exchange});
  }
  open_queue();
  if (ranks() > 1) enqueue_exchange(bucket, flight.others);
  enqueue_sums(bucket, flight.others);
  flight.done = queue_->record();
  flights_.push_back(std::move(flight));
}

// Ranks that do not have the same gradients come to exchanges of other names, which an error tells.
Name GradientExchange::name_of(int64_t bucket) const {
  const Parameter *first = nullptr, *last = nullptr;
  int64_t others = 0;
  for (int r = 0; r < ranks(); ++r) {
    for (const Slice& s : pieces_.slices(bucket, r)) {
      const Parameter& p = parameter_of(s);
      if (p.grad || &p == last) continue;
      if (first) ++others;
      if (!first) first = &p;
      last = &p;
    }
  }
  if (!first) return "gradients";
  return sentence("gradients without ", first->name,
                  others ? sentence(" and ", others, " more") : "");
}

void GradientExchange::enqueue_exchange(int64_t bucket, const Tensor& others) {
  Messages out, in;
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    for (const Slice& s : pieces_.slices(bucket, r)) {
      const Tensor& gradient = parameter_of(s).grad;
      if (gradient) out.push_back(message(r, gradient.view().slice_elements(s.elements)));
    }
    const Tensor theirs = others.slice(stretch(r < rank() ? r : r - 1, 1));
    for (const Slice& s : pieces_.slices(bucket, rank())) {
      if (!parameter_of(s).grad) continue;
      in.push_back(message(r, theirs.view().slice_elements(stretch(s.at, s.elements.size()))));
    }
  }
  ranks_.exchange(name_of(bucket).c_str(), std::move(out), std::move(in), *queue_);
}

void GradientExchange::enqueue_sums(int64_t bucket, const Tensor& others) {
  SumRanks kernel;
  for (int r = 0; r < ranks(); ++r) {
    const bool is_own = r == rank();
    const Tensor theirs = is_own ? Tensor() : others.slice(stretch(r < rank() ? r : r - 1, 1));
    kernel.pieces.add(is_own ? nullptr : theirs.view().data());
  }
  const auto launch_list = [&] {
    if (kernel.slices.size() > 0) launch(kernel, *queue_);
    kernel.slices = {};
  };
  const int64_t begin = bucket * pieces_.piece_elements();
  for (const Slice& s : pieces_.slices(bucket, rank())) {
    const Range at = stretch(s.at, s.elements.size());
    const View own = elements_of(parameter_of(s).grad, s.elements);
    if (!own || (stage_ != 2 && ranks() == 1)) continue;
    SumRanks::Entry entry{.out = own, .own = own, .at = s.at};
    if (stage_ == 2) {
      size_t i = first_own_[s.parameter];
      while (own_[i].at != begin + s.at) ++i;
      const View sums = sums_[static_cast<size_t>(bucket)].view().slice_elements(at);
      entry.out = Grad(sums, is_summed_[i]);
      is_summed_[i] = true;
    }
    if (kernel.slices.full()) launch_list();
    kernel.slices.add(entry);
  }
  launch_list();
}

void GradientExchange::retire() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  compute_.wait(flight.done);
  if (stage_ != 2) return;
  for (int r = 0; r < ranks(); ++r) {
    for (const Slice& s : pieces_.slices(flight.bucket, r)) {
      int64_t& kept = kept_[s.parameter];
      kept -= s.elements.size();
      if (kept == 0) parameter_of(s).grad = {};
    }
  }
}

void GradientExchange::gather(const char* name,
                              const std::function<std::vector<View>(int rank)>& of) {
  enqueue(name, of);
  compute_.wait(queue_->record());
}

void GradientExchange::enqueue(const char* name,
                               const std::function<std::vector<View>(int rank)>& of) {
  if (ranks() == 1) return;
  Messages out, in;
  const std::vector<View> own = of(rank());
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    for (const View& v : own) out.push_back(message(r, v));
    for (const View& v : of(r)) in.push_back(message(r, v));
  }
  open_queue();
  ranks_.exchange(name, std::move(out), std::move(in), *queue_);
}

void GradientExchange::enqueue_pieces(const char* name, Range buckets,
                                      const std::function<View(const Parameter&)>& view_of) {
  constexpr int64_t max_elements = int64_t{32} << 20;  // of an exchange
  const int64_t step = std::max<int64_t>(1, max_elements / (pieces_.piece_elements() * ranks()));
  for (int64_t first = buckets.begin; first < buckets.end; first += step) {
    enqueue(name, [&](int r) {
      std::vector<View> all;
      for (int64_t b = first; b < std::min(first + step, buckets.end); ++b) {
        for (const Slice& s : pieces_.slices(b, r)) {
          const View part = elements_of(view_of(parameter_of(s)), s.elements);
          if (part) all.push_back(part);
        }
      }
      return all;
    });
  }
}

// Whatever the order of updates, parameters are sent in that of the row.
void GradientExchange::is_updated(Range elements, Stream& by) {
  if (ranks() == 1) return;
  queue_->wait(by.record());
  updated_[elements.begin] = elements.end;
  while (updated_.contains(updated_to_)) updated_to_ = updated_.extract(updated_to_).mapped();
  send_parameters(updated_to_ / pieces_.piece_elements());
}

void GradientExchange::send_parameters(int64_t end) {
  enqueue_pieces("parameters", {sent_, end}, [](const Parameter& p) { return p.data.view(); });
  sent_ = end;
}

void GradientExchange::gather_parameters() {
  send_parameters(pieces_.buckets());
  compute_.wait(queue_->record());
}

void GradientExchange::gather_granules(const Tensor& granules) {
  gather("norms", [&](int r) {
    std::vector<View> all;
    for (int64_t b = 0; b < pieces_.buckets(); ++b) {
      const Range row = pieces_.elements_of(b, r);
      const Range of_row{row.begin / norm_granule, row.end / norm_granule};
      if (of_row.size() > 0) all.push_back(granules.view().slice_elements(of_row));
    }
    return all;
  });
}

void GradientExchange::free_gradients() {
  sums_.assign(sums_.size(), {});
  is_summed_.assign(own_.size(), false);
  updated_.clear();
  updated_to_ = sent_ = 0;
}

void GradientExchange::abandon() noexcept {
  if (!flights_.empty()) {
    for (Stream* s : {&compute_, queue_.get()}) {
      try {
        s->synchronize();
      } catch (...) {
      }
    }
    flights_.clear();
  }
  free_gradients();
}

}  // namespace spool
