#include "spool/runtime/shape.h"

#include "spool/runtime/integer.h"

namespace spool {

Shape::Shape(std::initializer_list<int64_t> extents) {
  check(extents.size() <= max_rank, "shape: ", extents.size(),
        " dimensions were given; a tensor has at most ", max_rank);
  int64_t n = 1;
  for (int64_t extent : extents) {
    extents_[rank_++] = extent;
    check(extent >= 0, "shape ", *this, ": an extent is negative");
    check(extent == 0 || n <= (int64_t{1} << 59) / extent, "shape ", *this,
          ": more than 2^59 elements");
    n *= std::max<int64_t>(extent, 1);
  }
}

Shape Shape::with(int i, int64_t extent) const {
  Shape s = *this;
  s.extents_[i < 0 ? i + rank_ : i] = extent;
  return s;
}

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  out << '(';
  for (int i = 0; i < s.rank_; ++i) out << (i ? ", " : "") << s.extents_[i];
  return out << ')';
}

std::vector<Range> split(int64_t extent, int64_t n) {
  const int64_t step = std::max<int64_t>(ceil_div(extent, n), 1);
  std::vector<Range> ranges;
  for (int64_t i = 0; i < extent; i += step) ranges.push_back({i, std::min(i + step, extent)});
  return ranges;
}

}  // namespace spool
