#include "spool/kernels/copy.h"

#include <algorithm>

#include "spool/kernels/copy_loops.h"
#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

using Loop = CopyLoops::Loop;

// Where a row begins, in elements; next() goes on to the next one.
class Row {
 public:
  Row(const CopyLoops& loops, int64_t row) : loops_(loops) {
    for (size_t i = 3; i-- > 0;) {
      const Loop& loop = loops.loops[i];
      at_[i] = row % loop.extent;
      row /= loop.extent;
      out += at_[i] * loop.out;
      in += at_[i] * loop.in;
    }
  }
  void next() {
    for (size_t i = 3; i-- > 0;) {
      const Loop& loop = loops_.loops[i];
      out += loop.out;
      in += loop.in;
      if (++at_[i] < loop.extent) return;
      at_[i] = 0;
      out -= loop.extent * loop.out;
      in -= loop.extent * loop.in;
    }
  }
  int64_t out = 0, in = 0;

 private:
  const CopyLoops& loops_;
  std::array<int64_t, 3> at_{};
};

template <class T, class Out>
void copy_rows(CpuStream& stream, const CopyLoops& loops, const T* in, const Out& out) {
  const int64_t width = loops.last().extent;
  stream.parallel_for(loops.elements(), cpu::piece_elements, [&](int64_t begin, int64_t end) {
    Row row(loops, begin / width);
    int64_t column = begin % width;
    for (int64_t i = begin; i < end; row.next(), column = 0) {
      const int64_t count = std::min(width - column, end - i);
      const T* from = in + row.in + column;
      cpu::put_all(count, out.at(row.out + column), [=](int64_t k) { return from[k]; });
      i += count;
    }
  });
}

// A copy with a loop of its own over neighbours in `in`, in tiles of both loops, so that all that
// is needed of a cache line is read while it is cached.
struct Tiles {
  static constexpr int64_t side = 32, span = 512;

  Loop of_in, of_out;  // over neighbours in `in`, and in `out`
  CopyLoops others;    // with one element in place of these loops
  int64_t bands, spans, count;

  explicit Tiles(const CopyLoops& loops)
      : of_in(loops.loops[loops.neighbours()]),
        of_out(loops.last()),
        others(loops),
        bands(ceil_div(of_in.extent, side)),
        spans(ceil_div(of_out.extent, span)),
        count(loops.rows() / of_in.extent * bands * spans) {
    others.loops[loops.neighbours()].extent = 1;
    others.loops[3].extent = 1;
  }
  int64_t grain() const {
    const int64_t elements = std::min(of_in.extent, side) * std::min(of_out.extent, span);
    return cpu::piece_rows(elements);
  }

  // One band of `in`, `side` wide, and a span of `out`.
  template <class T, class Out>
  void copy(int64_t index, const T* in, const Out& out) const {
    const int64_t first = index % bands * side, height = std::min(side, of_in.extent - first);
    const int64_t begin = index / bands % spans * span;
    const int64_t end = std::min(begin + span, of_out.extent);
    const Row at(others, index / bands / spans);
    T tile[side][side + 1];
    for (int64_t c = begin; c < end; c += side) {
      const int64_t width = std::min(side, end - c);
      for (int64_t j = 0; j < width; ++j) {
        std::copy_n(in + at.in + (c + j) * of_out.in + first, height, tile[j]);
      }
      for (int64_t i = 0; i < height; ++i) {
        cpu::put_all(width, out.at(at.out + (first + i) * of_in.out + c),
                     [&tile, i](int64_t j) { return tile[j][i]; });
      }
    }
  }
};

// Copies from element in_first of `in` on to element out_first of `out` on.
void copy(CpuStream& stream, const CopyLoops& loops, const Grad& out, int64_t out_first,
          const View& in, int64_t in_first) {
  if (loops.elements() == 0) return;
  const auto run = [&](const auto* from, const auto& to) {
    if (loops.keeps_rows()) return copy_rows(stream, loops, from, to);
    const Tiles tiles(loops);
    stream.parallel_for(tiles.count, tiles.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) tiles.copy(i, from, to);
    });
  };
  if (in.dtype() == DType::i32) {
    return run(in.as<int32_t>() + in_first, cpu::plain<int32_t>(out.view).at(out_first));
  }
  cpu::dispatch(in.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cpu::dispatch_sink<T>(out, [&](auto to) { run(in.as<T>() + in_first, to.at(out_first)); });
  });
}

}  // namespace

void run(const StridedCopy& k, CpuStream& stream) {
  copy(stream, CopyLoops(k), k.out, k.out_first, k.in, k.in_first);
}

void run(const CopyBlocks& k, CpuStream& stream) {
  for (const CopyBlocks::Block& b : k.blocks) {
    copy(stream, CopyLoops(b), k.out, b.out_first, k.in, b.in_first);
  }
}

void run(const Permute& k, CpuStream& stream) { copy(stream, CopyLoops(k), k.out, 0, k.in, 0); }

}  // namespace spool
