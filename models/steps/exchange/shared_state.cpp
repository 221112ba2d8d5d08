#include "spool/models/steps/exchange/shared_state.h"

#include <algorithm>
#include <cstring>

#include "spool/kernels/reduce.h"

namespace spool {
namespace {

constexpr const char *exchange_of_state = "state", *is_done = "done", *has_failed = "failed";

}  // namespace

// Rank 0 reads in whole as long as it lives.
class SharedState::Reading {
 public:
  Reading(SharedState& shared, Optimizer& optimizer) : shared_(shared) {
    shared_.optimizer_ = &optimizer;
    const bool has_parts =
        std::ranges::any_of(shared_.all_, [](const Parameter* p) { return p->part != nullptr; });
    const bool is_divided = shared_.exchange_.stage() > 0 && shared_.exchange_.ranks() > 1;
    shared_.others_answer_ =
        shared_.ranks_.rank() == 0 && shared_.ranks_.size() > 1 && (has_parts || is_divided);
    if (!shared_.others_answer_) return;
    for (size_t i = 0; i < shared_.all_.size(); ++i) {
      const Parameter& p = *shared_.all_[i];
      if (!p.part || !p.part->is_cut()) continue;
      p.part->set_reader([this, i, &p](Range whole, std::span<std::byte> out) {
        shared_.read({.is_of_parameter = true, .range = {.parameter = i, .elements = whole}},
                     size_of(p.data.dtype()), out);
      });
    }
  }
  ~Reading() {
    for (const Parameter* p : shared_.all_) {
      if (p->part) p->part->set_reader({});
    }
    shared_.others_answer_ = false;
    shared_.optimizer_ = nullptr;
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  SharedState& shared_;
};

SharedState::SharedState(const std::vector<Parameter*>& all, GradientExchange& exchange,
                         const MeshRanks* shards, Stream& stream)
    : all_(all),
      exchange_(exchange),
      shards_(shards),
      stream_(stream),
      ranks_(exchange.communicator()),
      neighbours_(shards ? shards->mesh().ranks() : 1) {}

bool SharedState::is_counted(const Parameter& p) const {
  return p.part ? p.part->is_first() : neighbours_ == 1 || shards_->rank() == 0;
}

void SharedState::add_up(const Tensor& squared) {
  if (neighbours_ == 1) return;
  const Tensor all({Shape{neighbours_}, DType::f64}, stream_,
                   {.name = "norms of ranks", .purpose = Purpose::workspace});
  shards_->all().all_gather(all, squared, stream_, "norms");
  launch(SumGranules{.out = squared, .granules = all}, stream_);
}

const Parameter& SharedState::parameter_of(const Request& r) const {
  return r.is_of_parameter ? *all_[r.range.parameter]
                           : *optimizer_->parameters()[r.range.parameter];
}

// Calls each(whole, own) for each stretch of the request that a rank gives: its first element in
// the whole parameter, and its elements in what the rank has.  In one order on all ranks.
template <class Each>
void SharedState::for_each_stretch(int rank, const Request& request, const Each& each) const {
  const Parameter& p = parameter_of(request);
  const int neighbour = rank % neighbours_, replica = rank / neighbours_;
  ParameterPart::Stretches has{.own = request.range.elements, .whole = {request.range.elements}};
  const bool is_flat = request.is_of_parameter && p.part && p.part->flat();
  if (p.part) {
    const ParameterPart part =
        is_flat ? p.part->of_rank(neighbour, replica) : p.part->of_rank(neighbour);
    if (!part.is_first()) return;
    has = part.stretches(request.range.elements);
  } else if (neighbour > 0) {
    return;
  }
  std::vector<Range> pieces;  // of what the rank has
  if (request.is_of_parameter || exchange_.stage() == 0) {
    if (replica == 0 || is_flat) pieces.push_back(has.own);
  } else {
    for (int64_t b = 0; b < exchange_.pieces().buckets(); ++b) {
      for (const OwnRow::Slice& s : exchange_.pieces().slices(b, replica)) {
        if (s.parameter == request.range.parameter) pieces.push_back(s.elements);
      }
    }
  }
  for (const Range& piece : pieces) {
    int64_t own = has.own.begin;
    for (const Range& whole : has.whole) {
      const Range both{std::max(own, piece.begin), std::min(own + whole.size(), piece.end)};
      if (both.begin < both.end) each(whole.begin + both.begin - own, both);
      own += whole.size();
    }
  }
}

std::string SharedState::own_elements(const Request& request, size_t element_bytes) const {
  std::string bytes;
  std::vector<std::byte> some;
  Range run;  // of neighbouring stretches, which are read at once
  const auto read_run = [&] {
    if (run.size() == 0) return;
    some.resize(static_cast<size_t>(run.size()) * element_bytes);
    if (request.is_of_parameter) {
      read_bytes(parameter_of(request).data, static_cast<size_t>(run.begin) * element_bytes, some);
    } else {
      optimizer_->read_own_state({request.range.row, request.range.parameter, run}, some);
    }
    bytes.append(reinterpret_cast<const char*>(some.data()), some.size());
  };
  for_each_stretch(ranks_.rank(), request, [&](int64_t, Range own) {
    if (own.begin != run.end) {
      read_run();
      run.begin = own.begin;
    }
    run.end = own.end;
  });
  read_run();
  return bytes;
}

void SharedState::read(const Request& request, size_t element_bytes,
                       std::span<std::byte> out) const {
  const std::string own_bytes =
      own_elements(request, element_bytes);  // before the others are asked
  ranks_.gather(exchange_of_state, {reinterpret_cast<const char*>(&request), sizeof request});
  const std::vector<std::string> answers = ranks_.gather(exchange_of_state, own_bytes);
  for (int r = 0; r < ranks_.size(); ++r) {
    const std::string& answer = answers[static_cast<size_t>(r)];
    size_t read = 0;
    for_each_stretch(r, request, [&](int64_t whole, Range own) {
      const size_t bytes = static_cast<size_t>(own.size()) * element_bytes;
      const auto at = static_cast<size_t>(whole - request.range.elements.begin) * element_bytes;
      std::memcpy(out.data() + at, answer.data() + read, bytes);
      read += bytes;
    });
  }
}

void SharedState::read_state(const StateRange& range, size_t element_bytes,
                             std::span<std::byte> out) {
  read({.range = range}, element_bytes, out);
}

bool SharedState::serve() const {
  for (;;) {
    const std::string asked = ranks_.gather(exchange_of_state, "").front();
    if (asked == is_done || asked == has_failed) return asked == is_done;
    Request request;
    std::memcpy(&request, asked.data(), sizeof request);
    const DType type = request.is_of_parameter ? parameter_of(request).data.dtype()
                                               : optimizer_->state_rows()[request.range.row].type;
    ranks_.gather(exchange_of_state, own_elements(request, size_of(type)));
  }
}

bool SharedState::share(Optimizer& optimizer, const std::function<void()>& work) {
  optimizer.synchronize();
  exchange_.synchronize();
  const Reading reading(*this, optimizer);
  if (ranks_.rank() > 0) return serve();
  try {
    work();
  } catch (const RankEnded&) {  // which the others hear by themselves
    throw;
  } catch (...) {
    ranks_.gather(exchange_of_state, has_failed);
    throw;
  }
  ranks_.gather(exchange_of_state, is_done);
  return true;
}

}  // namespace spool
