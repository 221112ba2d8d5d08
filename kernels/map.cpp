#include "spool/kernels/map.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/map_sizes.h"

namespace spool {

namespace map_details {

bool fits(const Shape& x, const Shape& y, Broadcast& broadcast) {
  const int64_t n = x.numel();
  if (x == y) {
    broadcast = Broadcast::none;
  } else if (n == 1) {
    broadcast = Broadcast::number;
  } else if (n == y.row() && x.row() == n) {
    broadcast = Broadcast::row;
  } else if (y.rank() > 0 && x == y.with(-1, 1)) {
    broadcast = Broadcast::column;
  } else {
    return false;
  }
  return true;
}

void check_forward(const char* name, const View& y, std::span<const View> x) {
  const Arguments all(name);
  all.present("y", y, floating);
  bool any_whole = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!x[i] || x[i].dtype() != y.dtype()) [[unlikely]]
      all.present(sentence('x', i).c_str(), x[i], y.dtype());
    Broadcast broadcast;
    if (!fits(x[i].shape(), y.shape(), broadcast)) [[unlikely]]
      broadcast_of(sentence(name, ": x", i).c_str(), x[i].shape(), y.shape());
    any_whole |= x[i].shape() == y.shape();
    all.same_or_apart("y", y, "x", x[i]);
  }
  check(any_whole, name, ": y is ", y.spec(), ", and one of the inputs must have its shape");
}

void check_backward(const char* name, std::span<const Grad> dx, const View& dy,
                    std::span<const View> slots, std::span<const uint32_t> reads,
                    std::span<const Broadcast> broadcasts) {
  const Arguments all(name);
  all.present("dy", dy, floating);
  const DType type = dy.dtype();
  const auto check_elements = [&](const char* letter, size_t i, const View& v, Types types,
                                  Broadcast broadcast) {
    const int64_t count = elements(broadcast, dy.shape());
    if (v && types.has(v.dtype()) && v.numel() == count) return;
    all.elements(sentence(letter, i).c_str(), v, types, count);
  };
  uint32_t read = 0;
  for (size_t k = 0; k < dx.size(); ++k) {
    if (!dx[k]) continue;
    read |= reads[k];
    check_elements("dx", k, dx[k].view, gradient_of(type), broadcasts[k]);
    if (broadcasts[k] == Broadcast::none) {
      all.same_or_apart("dx", dx[k].view, "dy", dy);
    } else {
      all.apart("dx", dx[k].view, {{"dy", dy}});
    }
    for (const View& slot : slots) all.apart("dx", dx[k].view, {{"x", slot}});
  }
  const size_t inputs = dx.size();
  for (size_t s = 0; s < inputs; ++s) {
    if (read >> s & 1) check_elements("x", s, slots[s], type, broadcasts[s]);
  }
  if (read >> inputs & 1) all.elements("y", slots[inputs], type, dy.numel());
}

size_t workspace(std::span<const Grad> dx, const View& dy, std::span<const Broadcast> broadcasts,
                 const CpuArchitecture&) {
  size_t bytes = 0;
  for (size_t k = 0; k < dx.size(); ++k) {
    if (dx[k]) bytes += SumPieces::bytes(dy.shape(), broadcasts[k], accumulator(dy.dtype()));
  }
  return bytes;
}

size_t workspace(std::span<const Grad> dx, const View& dy, std::span<const Broadcast> broadcasts,
                 const CudaArchitecture&) {
  size_t bytes = 0;
  for (size_t k = 0; k < dx.size(); ++k) {
    if (dx[k]) bytes += cuda_sum_bytes(broadcasts[k], dy.shape());
  }
  return bytes;
}

}  // namespace map_details

Broadcast broadcast_of(const char* name, const Shape& x, const Shape& y) {
  Broadcast broadcast = Broadcast::none;
  if (map_details::fits(x, y, broadcast)) return broadcast;
  const Shape column = y.rank() ? y.with(-1, 1) : y;
  fail(ErrorKind::invalid, name, ": ", x, " does not broadcast to ", y, "; ", y, ", a row ",
       Shape{y.row()}, ", a number for each row ", column, " or one number (1) would; see reshape");
}

}  // namespace spool
