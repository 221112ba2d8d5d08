#include "spool/models/steps/exchange/gradient_exchange.h"

#include <algorithm>

#include "spool/kernels/reduce.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

Message message(int peer, const View& v, size_t at) { return {peer, v.data(), v.nbytes(), at}; }

View elements_of(const View& whole, Range elements) {
  return whole ? whole.slice_elements(elements) : whole;
}

std::byte* data_of(const Tensor& t) { return t ? t.view().data() : nullptr; }

Range stretch(int64_t begin, int64_t size) { return {begin, begin + size}; }

// Waits for exchanges, and then for the compute stream, which may have freed what they read.
void finish(Stream& queue, Stream& compute) noexcept {
  for (Stream* s : {&queue, &compute}) {
    try {
      s->synchronize();
    } catch (...) {  // as after a step that failed
    }
  }
}

}  // namespace

GradientExchange::GradientExchange(std::vector<Parameter*> parameters, Stream& stream,
                                   std::shared_ptr<const ExchangeQueue> queue, int neighbours,
                                   int stage, int buckets_in_flight)
    : compute_(stream),
      ranks_(queue->ranks()),
      queue_(std::move(queue)),
      neighbours_(neighbours),
      stage_(stage),
      max_in_flight_(static_cast<size_t>(buckets_in_flight)),
      parameters_(std::move(parameters)),
      pieces_(parameters_, ranks()),
      own_(pieces_.own_slices(rank())),
      first_own_(parameters_.size(), own_.size()),
      first_granules_(parameters_.size()),
      sums_(static_cast<size_t>(pieces_.buckets())),
      is_summed_(own_.size()) {
  for (size_t i = own_.size(); i-- > 0;) first_own_[own_[i].parameter] = i;
  for (int64_t b = 0; b < pieces_.buckets(); ++b) {
    for (int r = 0; r < ranks(); ++r) {
      for (const Slice& s : pieces_.slices(b, r)) buckets_of_[&parameter_of(s)].push_back(b);
    }
  }
  int64_t granules = 0;
  for (size_t i = parameters_.size(); i-- > 0;) {
    first_granules_[i] = granules;
    granules += ceil_div(parameters_[i]->gathered().shape.numel(), norm_granule);
  }
}

View GradientExchange::gradient(size_t parameter, Range elements) const {
  if (!divides_gradients()) return elements_of(parameters_[parameter]->grad, elements);
  size_t i = first_own_[parameter];
  while (i < own_.size() && own_[i].elements.end <= elements.begin) ++i;
  if (i == own_.size() || !is_summed_[i]) return {};
  const int64_t at = own_[i].at + elements.begin - own_[i].elements.begin;
  const int64_t bucket = pieces_.bucket_of(at);
  const Tensor& sums = sums_[static_cast<size_t>(bucket)];
  return sums.view().slice_elements(stretch(at - pieces_.begin_of(bucket), elements.size()));
}

void GradientExchange::begin_backward() {
  missing_.assign(sums_.size(), 0);
  kept_.clear();
  for (const Parameter* p : parameters_) kept_.push_back(p->gathered().shape.numel());
  for (const auto& [parameter, buckets] : buckets_of_) {
    for (const int64_t b : buckets) ++missing_[static_cast<size_t>(b)];
  }
  next_ = 0;
}

// A bucket goes when all its gradients are final and those before it have gone.
void GradientExchange::is_final(Parameter& p) {
  for (const int64_t b : buckets_of_[&p]) --missing_[static_cast<size_t>(b)];
  while (next_ < pieces_.buckets() && missing_[static_cast<size_t>(next_)] == 0) {
    hand_over(next_++);
  }
}

void GradientExchange::end_backward() {
  while (next_ < pieces_.buckets()) hand_over(next_++);
  while (!flights_.empty()) retire();
  others_ = workspace_ = {};
  if (stage_ != 0) return;
  enqueue_pieces("gradients back", {0, pieces_.buckets()}, size_of(gradient_type()),
                 [](const Parameter& p) { return View(p.grad); });
  compute_.wait(queue_->stream().record());
  workspace_ = {};
}

void GradientExchange::hand_over(int64_t bucket) {
  if (flights_.size() == max_in_flight_) retire();
  const DType type = gradient_type();
  Tensor& sums = sums_[static_cast<size_t>(bucket)];
  if (divides_gradients() && !sums) {
    sums = Tensor({Shape{pieces_.piece_elements(bucket)}, type}, compute_,
                  {.name = "own gradients", .purpose = Purpose::gradient});
  }
  if (ranks() > 1 && !others_) {
    others_ = Tensor({Shape{ranks() * pieces_.piece_elements()}, type}, compute_,
                     {.name = "gradients of others", .purpose = Purpose::exchange});
    workspace_ = workspace_for(piece_bytes(pieces_.piece_elements()));
  }
  queue_->follow(compute_);
  if (ranks() > 1) enqueue_exchange(bucket);
  enqueue_sums(bucket);
  flights_.push_back({.bucket = bucket, .done = queue_->stream().record()});
}

DType GradientExchange::gradient_type() const {
  return accumulator(parameters_.front()->data.dtype());
}

size_t GradientExchange::piece_bytes(int64_t elements) const {
  return static_cast<size_t>(elements) * size_of(gradient_type());
}

// Where a rank's piece of a bucket lands.
View GradientExchange::theirs(int64_t bucket, int rank) const {
  const int64_t piece = pieces_.piece_elements(bucket);
  return others_.view().slice_elements(stretch(rank * piece, piece));
}

// What all ranks of the communicator exchange has a pattern; of some of them, that is messages.
Pattern GradientExchange::pattern_of(Pattern all) const {
  return neighbours_ == 1 ? all : Pattern::messages;
}

size_t GradientExchange::workspace_bytes(size_t piece) const {
  return neighbours_ == 1 ? ranks_.workspace_bytes(piece) : 0;
}

// Absent where the communicator needs none.
Tensor GradientExchange::workspace_for(size_t piece) const {
  const size_t bytes = workspace_bytes(piece);
  if (bytes == 0) return {};
  return Tensor({Shape{static_cast<int64_t>(bytes)}, DType::i8}, compute_,
                {.name = "pieces of an exchange", .purpose = Purpose::exchange});
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

void GradientExchange::enqueue_exchange(int64_t bucket) {
  Exchange exchange{.name = name_of(bucket).c_str(),
                    .pattern = pattern_of(Pattern::all_to_all),
                    .piece = piece_bytes(pieces_.piece_elements(bucket)),
                    .workspace = data_of(workspace_),
                    .landing = data_of(others_)};
  const size_t element_bytes = size_of(gradient_type());
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    for (const Slice& s : pieces_.slices(bucket, r)) {
      const View gradient = elements_of(parameter_of(s).grad, s.elements);
      const size_t at = static_cast<size_t>(s.at) * element_bytes;
      if (gradient) exchange.out.push_back(message(peer(r), gradient, at));
    }
    for (const Slice& s : pieces_.slices(bucket, rank())) {
      if (!parameter_of(s).grad) continue;
      const View part = theirs(bucket, r).slice_elements(stretch(s.at, s.elements.size()));
      exchange.in.push_back(message(peer(r), part, static_cast<size_t>(s.at) * element_bytes));
    }
  }
  ranks_.exchange(std::move(exchange), queue_->stream());
}

void GradientExchange::enqueue_sums(int64_t bucket) {
  SumRanks kernel;
  for (int r = 0; r < ranks(); ++r) {
    kernel.pieces.add(r == rank() ? nullptr : theirs(bucket, r).data());
  }
  const auto launch_list = [&] {
    if (kernel.slices.size() > 0) launch(kernel, queue_->stream());
    kernel.slices = {};
  };
  const int64_t begin = pieces_.begin_of(bucket);
  for (const Slice& s : pieces_.slices(bucket, rank())) {
    const Range at = stretch(s.at, s.elements.size());
    const View own = elements_of(parameter_of(s).grad, s.elements);
    if (!own || (!divides_gradients() && ranks() == 1)) continue;
    SumRanks::Entry entry{.out = own, .own = own, .at = s.at};
    if (divides_gradients()) {
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
  if (!divides_gradients()) return;
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
  if (ranks() == 1) return;
  size_t piece = 0;
  for (int r = 0; r < ranks(); ++r) {
    size_t bytes = 0;
    for (const View& v : of(r)) bytes += v.nbytes();
    piece = std::max(piece, bytes);
  }
  const Tensor workspace = workspace_for(piece);
  try {
    enqueue({.name = name, .piece = piece, .workspace = data_of(workspace)}, of);
    compute_.wait(queue_->stream().record());
  } catch (...) {
    finish(queue_->stream(), compute_);  // before the workspace is freed
    throw;
  }
}

void GradientExchange::enqueue(Exchange exchange,
                               const std::function<std::vector<View>(int rank)>& of) {
  exchange.pattern = pattern_of(Pattern::all_gather);
  const auto add = [](Messages& to, int peer, const std::vector<View>& views) {
    size_t at = 0;
    for (const View& v : views) {
      to.push_back(message(peer, v, at));
      at += v.nbytes();
    }
  };
  const std::vector<View> own = of(rank());
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    add(exchange.out, peer(r), own);
    add(exchange.in, peer(r), of(r));
  }
  queue_->follow(compute_);
  ranks_.exchange(std::move(exchange), queue_->stream());
}

// The buckets of an exchange of the largest pieces, whose elements have so many bytes: as many as
// the workspace of an exchange of gradients and its landing have room for, or, where there is none,
// 32 Mi elements.
int64_t GradientExchange::buckets_together(size_t element_bytes) const {
  constexpr int64_t max_elements = int64_t{32} << 20;
  const auto piece = static_cast<size_t>(pieces_.piece_elements());
  const size_t room = 2 * workspace_bytes(piece_bytes(pieces_.piece_elements())),
               of_one = workspace_bytes(piece * element_bytes);
  const int64_t together = of_one > 0 ? static_cast<int64_t>(room / of_one)
                                      : max_elements / (pieces_.piece_elements() * ranks());
  return std::max<int64_t>(1, together);
}

void GradientExchange::enqueue_pieces(const char* name, Range buckets, size_t element_bytes,
                                      const std::function<View(const Parameter&)>& view_of) {
  if (ranks() == 1 || buckets.size() <= 0) return;
  const int64_t together = buckets_together(element_bytes);
  const size_t piece = static_cast<size_t>(together * pieces_.piece_elements()) * element_bytes;
  for (int64_t first = buckets.begin; first < buckets.end;) {
    if (pieces_.is_flat(first)) {
      ++first;
      continue;
    }
    if (!workspace_) workspace_ = workspace_for(piece);
    const Range some{first, std::min(first + together, buckets.end)};
    const auto of = [&](int r) {
      std::vector<View> all;
      for (int64_t b = some.begin; b < some.end && !pieces_.is_flat(b); ++b) {
        for (const Slice& s : pieces_.slices(b, r)) {
          const View part = elements_of(view_of(parameter_of(s)), s.elements);
          if (part) all.push_back(part);
        }
      }
      return all;
    };
    first = some.end;
    enqueue({.name = name, .piece = piece, .workspace = data_of(workspace_)}, of);
  }
}

// Whatever the order of updates, parameters are sent in that of the row.
void GradientExchange::is_updated(Range elements, Stream& by) {
  if (ranks() == 1) return;
  queue_->stream().wait(by.record());
  updated_[elements.begin] = elements.end;
  while (updated_.contains(updated_to_)) updated_to_ = updated_.extract(updated_to_).mapped();
  const bool is_all = updated_to_ >= pieces_.own_elements();
  send_parameters(is_all ? pieces_.buckets() : pieces_.bucket_of(updated_to_));
}

void GradientExchange::send_parameters(int64_t end) {
  size_t element_bytes = 0;
  for (const Parameter* p : parameters_) {
    element_bytes = std::max(element_bytes, size_of(p->data.dtype()));
  }
  enqueue_pieces("parameters", {sent_, end}, element_bytes,
                 [](const Parameter& p) { return p.data.view(); });
  sent_ = end;
}

void GradientExchange::gather_parameters() {
  send_parameters(pieces_.buckets());
  compute_.wait(queue_->stream().record());
  workspace_ = {};
}

void GradientExchange::gather_granules(const Tensor& granules) {
  gather("norms", [&](int r) {
    std::vector<Range> runs;  // of neighbouring slices
    for (int64_t b = 0; b < pieces_.buckets(); ++b) {
      for (const Slice& s : pieces_.slices(b, r)) {
        const int64_t begin = first_granules_[s.parameter] + s.elements.begin / norm_granule;
        const Range some = stretch(begin, ceil_div(s.elements.size(), norm_granule));
        if (!runs.empty() && runs.back().end == begin) {
          runs.back().end = some.end;
        } else {
          runs.push_back(some);
        }
      }
    }
    std::vector<View> all;
    for (const Range& run : runs) all.push_back(granules.view().slice_elements(run));
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
  finish(queue_->stream(), compute_);
  flights_.clear();
  others_ = workspace_ = {};
  free_gradients();
}

}  // namespace spool
