#include "spool/models/optimizers/state_rows.h"

#include <algorithm>
#include <numeric>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/memory/arena.h"

namespace spool {
namespace {

// Bytes of this many elements in all rows of state.
size_t bytes_of(int64_t elements, const std::vector<StateRow>& rows) {
  size_t bytes = 0;
  for (const StateRow& row : rows) {
    bytes += round_up(static_cast<size_t>(elements) * size_of(row.type), Arena::granule);
  }
  return bytes;
}

std::vector<int64_t> numels_of(const std::vector<Parameter*>& parameters) {
  std::vector<int64_t> numels;
  for (const Parameter* p : parameters) numels.push_back(p->gathered().shape.numel());
  return numels;
}

// Types of the same size have the same zero.
void set_to_zero(const Tensor& row) {
  if (row.dtype() == DType::f32) return launch(Fill{.out = row}, row.stream());
  const size_t bytes = size_of(row.dtype());
  const DType type = bytes == 8 ? DType::f64 : bytes == 4 ? DType::f32 : DType::bf16;
  launch(Fill{.out = View(row.view().data(), {row.shape(), type})}, row.stream());
}

// The buckets of parts that follow one another or, in an own row, begin where they are in it after
// `begin` elements, of which there are so many.
Buckets buckets_of(const std::vector<StateRows::Part>& parts, const OwnRow* own, int64_t begin,
                   int64_t elements, int64_t bucket_elements) {
  std::vector<Range> ranges;
  std::vector<int64_t> begins;
  for (const StateRows::Part& part : parts) {
    ranges.push_back(part.range.elements);
    begins.push_back(part.range.at - begin);
  }
  if (own) {
    if (bucket_elements == 0) bucket_elements = Buckets::usual_size(elements);
    return {ranges, begins, elements, bucket_elements};
  }
  const Buckets usual(ranges);
  if (bucket_elements == 0) return usual;
  const int64_t all = std::max(usual.elements(), weights_granule);
  return Buckets::of_size(ranges, std::min(bucket_elements, all));
}

// The slices of an own row, of which the first elements have their state on the device.
std::vector<PlacedRange> own_places(const OwnRow& own, int64_t here, OptimizerState there) {
  std::vector<PlacedRange> places;
  const auto add = [&](OptimizerState place, const OwnRow::Slice& s, int64_t begin, int64_t end) {
    if (begin >= end) return;
    const int64_t first = s.elements.begin + begin - s.at;
    places.push_back({place, s.parameter, {first, first + end - begin}, begin});
  };
  for (const OwnRow::Slice& s : own.slices()) {
    const int64_t end = s.at + s.elements.size();
    add(OptimizerState::device, s, s.at, std::min(end, here));
    add(there, s, std::max(s.at, here), end);
  }
  return places;
}

}  // namespace

int64_t own_elements_on_device(const OwnRow& own, const std::vector<StateRow>& rows,
                               const OptimizerMemory& memory) {
  if (memory.state == OptimizerState::device || rows.empty()) return own.elements();
  if (memory.state != OptimizerState::streamed) return 0;
  if (bytes_of(own.elements(), rows) <= memory.bytes_on_device) return own.elements();
  const size_t granules = memory.bytes_on_device / bytes_of(weights_granule, rows);
  return std::min(own.elements(), static_cast<int64_t>(granules) * weights_granule);
}

std::vector<int64_t> elements_on_device(const std::vector<int64_t>& numels,
                                        const std::vector<StateRow>& rows, size_t bytes) {
  std::vector<size_t> order(numels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return numels[a] > numels[b]; });
  std::vector<int64_t> elements(numels.size());
  int64_t* divided = nullptr;
  for (const size_t i : order) {
    const size_t needed = bytes_of(numels[i], rows);
    if (needed <= bytes) {
      elements[i] = numels[i];
      bytes -= needed;
    } else {
      divided = &elements[i];
    }
  }
  if (divided) {
    const size_t granules = bytes / bytes_of(weights_granule, rows);
    *divided = static_cast<int64_t>(granules) * weights_granule;
  }
  return elements;
}

std::vector<PlacedRange> places_of(const std::vector<Parameter*>& parameters,
                                   const std::vector<StateRow>& rows,
                                   const OptimizerMemory& memory) {
  if (memory.own) {
    const int64_t here = own_elements_on_device(*memory.own, rows, memory);
    return own_places(*memory.own, here, memory.state);
  }
  const std::vector<int64_t> numels = numels_of(parameters);
  std::vector<int64_t> here = numels;  // if they are not away
  const auto is_away = [&](size_t i) {
    return memory.homes && memory.homes->is_away(*parameters[i]);
  };
  for (size_t i = 0; i < here.size(); ++i) {
    if (!is_away(i)) continue;
    check(memory.state == OptimizerState::streamed, "optimizer: parameter ", parameters[i]->name,
          " is trained and lives on the host, and the place of its state is ", name(memory.state),
          "; it must be streamed");
    here[i] = 0;
  }
  if (memory.state == OptimizerState::cpu && !rows.empty()) here.assign(here.size(), 0);
  if (memory.state == OptimizerState::streamed && !rows.empty()) {
    here = elements_on_device(here, rows, memory.bytes_on_device);
  }
  std::vector<PlacedRange> places;
  places.reserve(numels.size() + 1);
  for (size_t i = numels.size(); i-- > 0;) {
    if (here[i] > 0 || numels[i] == 0) {
      places.push_back({OptimizerState::device, i, {0, here[i]}});
    }
    const OptimizerState there = is_away(i) ? OptimizerState::streamed : memory.state;
    if (here[i] < numels[i]) places.push_back({there, i, {here[i], numels[i]}});
  }
  return places;
}

StateRows::StateRows(const std::vector<Parameter*>& parameters, std::vector<StateRow> rows,
                     bool masters, Stream& device, const OptimizerMemory& memory)
    : parameters_(parameters),
      rows_(std::move(rows)),
      masters_(masters),
      device_(device),
      own_(memory.own),
      bucket_elements_(memory.bucket_elements) {
  const std::vector<PlacedRange> places = places_of(parameters_, rows_, memory);
  on_device_.reserve(places.size());
  for (const PlacedRange& range : places) {
    Part& part = (range.place == OptimizerState::device ? on_device_ : on_host_).emplace_back();
    part.range = range;
    part.rows.reserve(rows_.size());
  }
  if (own_) own_here_ = own_elements_on_device(*own_, rows_, memory);
  if (own_ ? own_here_ < own_->elements() : !on_host_.empty()) {
    allocate_on_host(memory.link, memory.state);
  }
  own_ ? allocate_own_on_device() : allocate_on_device();
}

Buckets StateRows::device_buckets() const {
  if (link_ || own_) {
    return buckets_of(on_device_, own_, /*begin=*/0, own_here_, /*bucket_elements=*/0);
  }
  std::vector<Range> ranges;
  for (const Part& part : on_device_) ranges.push_back(part.range.elements);
  return Buckets::one(ranges);
}

void StateRows::allocate_own_on_device() {
  for (const StateRow& row : rows_) {
    const Tensor all(Spec{Shape{own_here_}, row.type}, device_,
                     Label{.name = sentence("own ", row.name), .purpose = Purpose::optimizer});
    for (Part& part : on_device_) {
      const int64_t at = part.range.at;
      part.rows.push_back(all.slice({at, at + part.range.elements.size()}));
    }
    own_rows_.push_back(all);
  }
}

void StateRows::allocate_on_device() {
  for (const StateRow& row : rows_) {
    for (Part& part : on_device_) {
      const Parameter& p = *parameters_[part.range.parameter];
      const int64_t n = part.range.elements.size();
      part.rows.emplace_back(
          Spec{n == p.spec().shape.numel() ? p.spec().shape : Shape{n}, row.type}, device_,
          Label{.name = p.name, .purpose = Purpose::optimizer});
    }
  }
}

void StateRows::allocate_on_host(HostLink* link, OptimizerState place) {
  check(link, "optimizer state '", name(place), "' needs a link to the host's memory");
  link_ = link;
  host_ = link->open_host();
  queues_ = {host_.get(), &link->out(), &link->in()};
  const int64_t own_there = own_ ? own_->elements() - own_here_ : 0;
  host_buckets_ = buckets_of(on_host_, own_, own_here_, own_there, bucket_elements_);
  for (const StateRow& row : rows_) {
    host_rows_.push_back(make_on_host(row.type, sentence("optimizer ", row.name)));
    for (size_t i = 0; i < on_host_.size(); ++i) {
      on_host_[i].rows.push_back(part_of(host_rows_.back(), i));
    }
  }
  if (place == OptimizerState::cpu) {
    host_updates_ = device_.side_stream();
    queues_.push_back(host_updates_.get());
    const Tensor all = make_on_host(parameters_.front()->spec().dtype, "parameters on the host");
    for (size_t i = 0; i < on_host_.size(); ++i) on_host_[i].parameter = part_of(all, i);
  }
  host_->synchronize();
}

Tensor StateRows::make_on_host(DType type, Name name) const {
  return Tensor({Shape{host_buckets_.elements()}, type}, *host_,
                {.name = name, .purpose = Purpose::optimizer});
}

Tensor StateRows::part_of(const Tensor& on_host, size_t part) const {
  const int64_t begin = host_buckets_.begin_of(part);
  return on_host.slice({begin, begin + on_host_[part].range.elements.size()});
}

View StateRows::of_host(size_t row, Range elements) const {
  return host_rows_[row].view().slice_elements(elements);
}

void StateRows::initialise() {
  const size_t zeros = rows_.size() - (masters_ ? 1 : 0);
  if (link_) {
    device_.synchronize();  // a step may be running
    for (const Tensor& row : host_rows_) set_to_zero(row);
    host_->synchronize();
  }
  for (size_t row = 0; row < zeros; ++row) {
    for (const Part& part : on_device_) set_to_zero(part.rows[row]);
  }
  if (host_updates_) enqueue_whole([&] { copy_parameters(); });
  if (!masters_) return;
  for (const Part& part : on_device_) {
    const View from = parameters_[part.range.parameter]->elements(part.range.elements);
    launch(Cast{.out = part.rows.back(), .in = from}, device_);
  }
  if (!link_) return;
  if (host_updates_) {
    for (const Part& part : on_host_) {
      launch(Cast{.out = part.rows.back(), .in = part.parameter}, *host_);
    }
    return host_->synchronize();
  }
  const Tensor memory({Shape{host_buckets_.bucket_elements()}}, device_,
                      {.name = "optimizer bucket", .purpose = Purpose::optimizer});
  enqueue_whole([&] {
    const auto is_at_home = [this](const Buckets::Slice& slice) {
      return bool(parameters_[on_host_[slice.part].range.parameter]->home);
    };
    for (const Buckets::Bucket& bucket : host_buckets_.all()) {
      if (!std::ranges::all_of(bucket.slices, is_at_home)) copy_masters(memory, bucket);
    }
  });
  make_masters_on_host();
}

void StateRows::make_masters_on_host() const {
  const auto is_at_home = [&](const Part& part) {
    return bool(parameters_[part.range.parameter]->home);
  };
  if (std::ranges::none_of(on_host_, is_at_home)) return;
  device_.synchronize();  // its copies write to these rows, too
  for (const Part& part : on_host_) {
    const Tensor& home = parameters_[part.range.parameter]->home;
    if (!home) continue;
    const View from = home.view().slice_elements(part.range.elements);
    launch(Cast{.out = part.rows.back().view().slice_elements({0, from.numel()}), .in = from},
           *host_);
  }
  host_->synchronize();
}

void StateRows::copy_parameters() const {
  Stream& out = link_->begin_out();
  for (const Part& part : on_host_) {
    const View from = parameters_[part.range.parameter]->elements(part.range.elements);
    out.copy_out(part.parameter.view().data(), from.data(), from.nbytes());
  }
  out.synchronize();
}

// Those of parameters that live on the host are made there.
void StateRows::copy_masters(const Tensor& memory, const Buckets::Bucket& bucket) const {
  for (const Buckets::Slice& slice : bucket.slices) {
    const Parameter& parameter = *parameters_[on_host_[slice.part].range.parameter];
    if (parameter.home) continue;
    launch(Cast{.out = memory.view().slice_elements({slice.at, slice.at + slice.elements.size()}),
                .in = parameter.elements(slice.elements)},
           device_);
  }
  Stream& out = link_->begin_out();
  const View to = of_host(rows_.size() - 1, bucket.elements);
  out.copy_out(to.data(), memory.view().data(), to.nbytes());
  device_.wait(out.record());
}

// Calls copy(tensor, its first byte, the first byte of the range, bytes) for each part of a range.
template <class Copy>
void StateRows::for_each_part(const StateRange& asked, const Copy& copy) const {
  const size_t size = size_of(rows_[asked.row].type);
  for (const auto* parts : {&on_device_, &on_host_}) {
    for (const Part& part : *parts) {
      if (part.range.parameter != asked.parameter) continue;
      const Range& here = part.range.elements;
      const int64_t begin = std::max(here.begin, asked.elements.begin);
      const int64_t end = std::min(here.end, asked.elements.end);
      if (begin >= end) continue;
      copy(part.rows[asked.row], static_cast<size_t>(begin - here.begin) * size,
           static_cast<size_t>(begin - asked.elements.begin) * size,
           static_cast<size_t>(end - begin) * size);
    }
  }
}

void StateRows::read(const StateRange& range, std::span<std::byte> out) const {
  for_each_part(range, [&](const Tensor& from, size_t begin, size_t at, size_t bytes) {
    read_bytes(from, begin, out.subspan(at, bytes));
  });
}

void StateRows::write(const StateRange& range, std::span<const std::byte> in) {
  for_each_part(range, [&](const Tensor& to, size_t begin, size_t at, size_t bytes) {
    write_bytes(to, begin, in.subspan(at, bytes));
    if (&to.stream() != &device_) to.stream().synchronize();
  });
}

void StateRows::synchronize() const {
  if (!link_) return;
  device_.synchronize();
  synchronize_all(queues_);
}

void StateRows::wait_quietly() const noexcept {
  if (!link_) return;
  const auto wait = [](Stream& stream) {
    try {
      stream.synchronize();
    } catch (...) {
    }
  };
  wait(device_);  // its replayed graphs contain the copies
  for (Stream* stream : queues_) wait(*stream);
}

}  // namespace spool
