#include "spool/autograd/sharding/parameter_part.h"

#include <algorithm>

#include "spool/kernels/copy.h"
#include "spool/kernels/normal.h"
#include "spool/runtime/check.h"

namespace spool {

struct ParameterPart::Walk {
  Range asked;
  Stretches found;

  // Elements that are neighbours in both.
  void add(int64_t whole, int64_t own, int64_t count) {
    const Range both{std::max(whole, asked.begin), std::min(whole + count, asked.end)};
    if (both.begin >= both.end) return;
    if (found.whole.empty()) found.own = {own + both.begin - whole, own + both.begin - whole};
    found.own.end += both.size();
    if (!found.whole.empty() && found.whole.back().end == both.begin) {
      found.whole.back().end = both.end;
    } else {
      found.whole.push_back(both);
    }
  }
};

ParameterPart::ParameterPart(WholeValue value, const Sharding& stored, MeshAxes mesh, int rank,
                             std::optional<Flat> flat)
    : value_(std::move(value)),
      stored_(stored),
      mesh_(std::move(mesh)),
      gathered_(local_spec(value_, stored_, mesh_)),
      flat_(flat) {
  const std::vector<int> coordinates = coordinates_of(rank);
  for (size_t a = 0; a < mesh_.size(); ++a) {
    if (stored_[a].is_cut()) number_ = number_ * mesh_[a] + coordinates[a];
    if (!stored_[a].is_cut() && coordinates[a] > 0) is_first_ = false;
  }
  if (flat_) number_ = number_ * flat_->parts.ranks() + flat_->replica;
  add_dimensions(coordinates);
}

ParameterPart ParameterPart::of_rank(int rank, std::optional<int> replica) const {
  std::optional<Flat> flat;
  if (flat_ && replica) flat = Flat{flat_->parts, *replica};
  return {value_, stored_, mesh_, rank, flat};
}

ParameterPart ParameterPart::gathered_part() const {
  ParameterPart part = *this;
  part.flat_.reset();
  return part;
}

int64_t ParameterPart::place_of(Range gathered) const {
  return flat_ ? flat_->parts.place_of(gathered.begin) : gathered.begin;
}

std::vector<int> ParameterPart::coordinates_of(int rank) const {
  std::vector<int> coordinates(mesh_.size());
  for (size_t a = mesh_.size(); a-- > 0; rank /= mesh_[a]) coordinates[a] = rank % mesh_[a];
  return coordinates;
}

// Of several axes that cut a dimension, the earlier one is the outer.
int64_t ParameterPart::number_along(int dimension, const std::vector<int>& coordinates) const {
  int64_t number = 0;
  for (size_t a = 0; a < mesh_.size(); ++a) {
    if (stored_[a].cuts(dimension)) number = number * mesh_[a] + coordinates[a];
  }
  return number;
}

void ParameterPart::add_dimensions(const std::vector<int>& coordinates) {
  const Shape& shape = value_.spec.shape;
  const JoinedRows rows = joined_rows(value_, stored_, mesh_);
  for (int d = 0; d < shape.rank();) {
    const int joined = d == 0 ? rows.dimensions : 1;
    Dimension dimension;
    for (int j = 0; j < joined; ++j) dimension.extent *= shape[d + j];
    std::vector<int64_t> parts = value_.dimensions[static_cast<size_t>(d)].parts;
    if (joined > 1) parts = {dimension.extent};
    const int64_t of = ways(stored_, d, mesh_), number = number_along(d, coordinates);
    int64_t begin = 0;
    for (const int64_t part : parts) {
      dimension.has.push_back({begin + part / of * number, begin + part / of * (number + 1)});
      begin += part;
    }
    dimensions_.push_back(std::move(dimension));
    d += joined;
  }
  for (size_t d = dimensions_.size(); d-- > 1;) {
    Dimension& before = dimensions_[d - 1];
    int64_t own = 0;
    for (const Range& r : dimensions_[d].has) own += r.size();
    before.inner = dimensions_[d].inner * dimensions_[d].extent;
    before.own_inner = dimensions_[d].own_inner * own;
  }
}

// Goes through the dimensions up to the last one that is cut.
void ParameterPart::walk(size_t dimension, Walk& walked, int64_t whole, int64_t own) const {
  const Dimension& d = dimensions_[dimension];
  for (const Range& has : d.has) {
    if (d.inner == d.own_inner) {  // all that is behind a place
      walked.add(whole + has.begin * d.inner, own, has.size() * d.inner);
    } else {
      const int64_t first = std::max(has.begin, (walked.asked.begin - whole) / d.inner);
      const int64_t last = std::min(has.end, (walked.asked.end - whole - 1) / d.inner + 1);
      for (int64_t i = first; i < last; ++i) {
        walk(dimension + 1, walked, whole + i * d.inner, own + (i - has.begin) * d.own_inner);
      }
    }
    own += has.size() * d.own_inner;
  }
}

ParameterPart::Stretches ParameterPart::stretches(Range whole) const {
  check(0 <= whole.begin && whole.begin <= whole.end && whole.end <= value_.spec.shape.numel(),
        "elements ", whole.begin, " to ", whole.end, " of a parameter ", value_.spec);
  Walk walked{.asked = whole, .found = {}};
  if (whole.size() > 0) walk(0, walked, 0, 0);
  return flat_ ? in_flat_part(walked.found) : std::move(walked.found);
}

ParameterPart::Stretches ParameterPart::in_flat_part(const Stretches& gathered) const {
  Walk walked{.asked = {0, value_.spec.shape.numel()}, .found = {}};
  int64_t own = gathered.own.begin;
  for (const Range& whole : gathered.whole) {
    for (int64_t b = 0; b < flat_->parts.buckets(); ++b) {
      const Range piece = flat_->parts.piece(b, flat_->replica);
      const Range both{std::max(own, piece.begin), std::min(own + whole.size(), piece.end)};
      if (both.begin >= both.end) continue;
      walked.add(whole.begin + both.begin - own, flat_->parts.place_of(both.begin), both.size());
    }
    own += whole.size();
  }
  return std::move(walked.found);
}

// Stretches of a column are as far apart as each other, and are copied at once.
void ParameterPart::copy_from(const View& piece, Range whole, const View& part,
                              Stream& stream) const {
  const Stretches has = stretches(whole);
  int64_t own = has.own.begin;
  for (size_t i = 0; i < has.whole.size();) {
    const Range& first = has.whole[i];
    const int64_t step = i + 1 < has.whole.size() ? has.whole[i + 1].begin - first.begin : 0;
    size_t next = i + 1;
    while (next < has.whole.size() && has.whole[next].size() == first.size() &&
           has.whole[next].begin - has.whole[next - 1].begin == step) {
      ++next;
    }
    const auto rows = static_cast<int64_t>(next - i);
    launch(StridedCopy{.out = part,
                       .in = piece,
                       .rows = rows,
                       .width = first.size(),
                       .out_stride = first.size(),
                       .in_stride = step,
                       .out_first = own,
                       .in_first = first.begin - whole.begin},
           stream);
    own += rows * first.size();
    i = next;
  }
}

void ParameterPart::draw(const Tensor& own, float deviation, uint64_t seed, uint32_t number) const {
  constexpr int64_t piece = int64_t{1} << 20;
  const int64_t numel = whole().shape.numel();
  Stream& stream = own.stream();
  const Tensor drawn({Shape{std::min(piece, numel)}, whole().dtype}, stream,
                     {.name = "initial values", .purpose = Purpose::workspace});
  for (int64_t begin = 0; begin < numel; begin += piece) {
    const Range all{begin, std::min(begin + piece, numel)};
    launch(NormalFill{.out = drawn.view().slice_elements({0, all.size()}),
                      .deviation = deviation,
                      .seed = seed,
                      .tensor = number,
                      .first = begin},
           stream);
    copy_from(drawn, all, own, stream);
  }
}

std::vector<std::byte> ParameterPart::pick(Range whole, std::span<const std::byte> bytes,
                                           size_t element_bytes) const {
  std::vector<std::byte> own;
  for (const Range& has : stretches(whole).whole) {
    const auto at = static_cast<size_t>(has.begin - whole.begin) * element_bytes;
    const auto some = bytes.subspan(at, static_cast<size_t>(has.size()) * element_bytes);
    own.insert(own.end(), some.begin(), some.end());
  }
  return own;
}

void ParameterPart::read_whole(Range whole, std::span<std::byte> out) const {
  check(bool(reader_), "a parameter of ", mesh_.ranks(), " ranks, ", value_.spec,
        ", of which this one has ", own(),
        ", is read in whole while all of them answer: within StepRunner::share_state() or save()");
  reader_(whole, out);
}

}  // namespace spool
