// The kernels of map.h for any functor.  They are given loops over contiguous elements of f32 or
// f64, and bring a block of elements at a time into that form: converted, broadcast, or as they
// are.  So a functor's own code is a few small loops.

#include "spool/kernels/map.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/map_sizes.h"

namespace spool::map_details {
namespace {

constexpr int64_t block_elements = 512;
constexpr size_t max_slots = max_inputs + 1;

// An argument of a functor, as elements of A in the order of y's.
template <class A>
class Source {
 public:
  Source() = default;
  Source(const View& view, Broadcast broadcast, int64_t columns)
      : data_(view.data()), type_(view.dtype()), broadcast_(broadcast), columns_(columns) {
    if (broadcast == Broadcast::number) std::fill_n(block_, block_elements, load(0));
  }

  // Elements [first, first + count) of y.
  const A* block(int64_t first, int64_t count) {
    if (broadcast_ == Broadcast::number) return block_;
    if (broadcast_ == Broadcast::none) return range(first, count, block_);
    for (int64_t done = 0; done < count;) {
      const int64_t row = (first + done) / columns_, column = (first + done) % columns_;
      const int64_t size = std::min(columns_ - column, count - done);
      if (broadcast_ == Broadcast::column) {
        std::fill_n(block_ + done, size, load(row));
      } else {
        const A* const from = range(column, size, block_ + done);
        if (size == count) return from;
        if (from != block_ + done) std::copy_n(from, size, block_ + done);
      }
      done += size;
    }
    return block_;
  }

 private:
  A load(int64_t i) const {
    if constexpr (std::is_same_v<A, float>) {
      if (type_ == DType::bf16) return static_cast<float>(reinterpret_cast<const bf16*>(data_)[i]);
    }
    return reinterpret_cast<const A*>(data_)[i];
  }
  // The elements, in place or converted to `to`.
  const A* range(int64_t first, int64_t count, A* to) const {
    if constexpr (std::is_same_v<A, float>) {
      if (type_ == DType::bf16) {
        const auto* const from = reinterpret_cast<const bf16*>(data_) + first;
        cpu::put_all(count, cpu::Sink<float, false>{to},
                     [=](int64_t i) { return static_cast<float>(from[i]); });
        return to;
      }
    }
    return reinterpret_cast<const A*>(data_) + first;
  }

  const std::byte* data_ = nullptr;
  DType type_ = DType::f32;
  Broadcast broadcast_ = Broadcast::none;
  int64_t columns_ = 1;
  alignas(64) A block_[block_elements];
};

// Where results of A go; they may first be written to `block`.
template <class A>
struct Destination {
  const Grad* grad = nullptr;
  alignas(64) A block[block_elements];

  // Memory for elements [first, ...).
  A* begin(int64_t first) {
    const bool is_direct = !grad->accumulate && grad->view.dtype() == dtype_of<A>();
    return is_direct ? grad->view.as<A>() + first : block;
  }
  void end(int64_t first, int64_t count) const {
    if (!grad->accumulate && grad->view.dtype() == dtype_of<A>()) return;
    const A* const from = block;
    const auto put = [&](auto out) {
      cpu::put_all(count, out.at(first), [=](int64_t i) { return from[i]; });
    };
    if constexpr (std::is_same_v<A, float>) {
      if (grad->view.dtype() == DType::bf16) return cpu::dispatch_sink<bf16>(*grad, put);
    }
    cpu::dispatch_sink<A>(*grad, put);
  }
};

template <class F>
void for_blocks(int64_t begin, int64_t end, const F& f) {
  for (int64_t first = begin; first < end; first += block_elements) {
    f(first, std::min(block_elements, end - first));
  }
}

template <class A>
void forward(CpuStream& stream, const View& y, std::span<const View> x, const void* f,
             ValueLoop loop) {
  const Grad out(y);
  stream.parallel_for(y.numel(), cpu::piece_elements, [&](int64_t begin, int64_t end) {
    std::array<Source<A>, max_inputs> sources;
    for (size_t i = 0; i < x.size(); ++i) {
      std::construct_at(&sources[i], x[i], broadcast_of("map", x[i].shape(), y.shape()),
                        y.shape().row());
    }
    Destination<A> to;
    to.grad = &out;
    for_blocks(begin, end, [&](int64_t first, int64_t count) {
      std::array<const void*, max_inputs> in{};
      for (size_t i = 0; i < x.size(); ++i) in[i] = sources[i].block(first, count);
      loop(f, count, to.begin(first), in.data());
      to.end(first, count);
    });
  });
}

// The terms of the gradients of some inputs, dy times a derivative.
template <class A>
class Terms {
 public:
  Terms(const BackwardArguments& k, std::span<const DerivativeLoop> loops, uint32_t wanted)
      : k_(k), loops_(loops), dy_(k.dy, Broadcast::none, 1) {
    for (size_t i = 0; i < loops.size(); ++i) {
      if (wanted >> i & 1) reads_ |= k.reads[i];
    }
    for (size_t s = 0; s < k.slots.size(); ++s) {
      if (!(reads_ >> s & 1)) continue;
      const Broadcast broadcast = s < k.broadcasts.size() ? k.broadcasts[s] : Broadcast::none;
      std::construct_at(&sources_[s], k.slots[s], broadcast, k.dy.shape().row());
    }
  }
  void begin(int64_t first, int64_t count) {
    count_ = count;
    dy_block_ = dy_.block(first, count);
    for (size_t s = 0; s < k_.slots.size(); ++s) {
      slots_[s] = reads_ >> s & 1 ? sources_[s].block(first, count) : nullptr;
    }
  }
  void find(size_t input, A* to) const {
    loops_[input](k_.f, count_, to, dy_block_, slots_.data());
  }

 private:
  const BackwardArguments& k_;
  std::span<const DerivativeLoop> loops_;
  uint32_t reads_ = 0;
  Source<A> dy_;
  std::array<Source<A>, max_slots> sources_;
  std::array<const void*, max_slots> slots_{};
  const A* dy_block_ = nullptr;
  int64_t count_ = 0;
};

// Sums the gradient of a broadcast input: over a piece of y's rows, then over pieces.
template <class A>
class Reduction {
 public:
  Reduction(const BackwardArguments& k, std::span<const DerivativeLoop> loops, size_t input,
            std::byte* partials)
      : k_(k),
        loops_(loops),
        input_(input),
        sums_(k.dy.shape(), k.broadcasts[input]),
        partials_(partials) {}

  void run(CpuStream& stream) const {
    stream.parallel_for(sums_.N, sums_.pieces.rows, [&](int64_t begin, int64_t end) {
      Terms<A> terms(k_, loops_, 1u << input_);
      Sums sums = sums_of(begin / sums_.pieces.rows);
      alignas(64) A block[block_elements];
      for_blocks(begin * sums_.C, end * sums_.C, [&](int64_t first, int64_t count) {
        terms.begin(first, count);
        terms.find(input_, block);
        add(block, first, count, sums);
      });
      if (broadcast() == Broadcast::number) numbers()[begin / sums_.pieces.rows] = sums.number;
    });
    if (sums_.C == 0 && broadcast() == Broadcast::column) {
      return put_all(stream, k_.dx[input_].view.numel(), [](int64_t) { return A{0}; });
    }
    add_up(stream);
  }

 private:
  // The sums of a piece; for a column, of the current row.
  struct Sums {
    A* row = nullptr;
    double number = 0;
  };
  Broadcast broadcast() const { return k_.broadcasts[input_]; }
  A* rows() const { return reinterpret_cast<A*>(partials_); }
  double* numbers() const { return reinterpret_cast<double*>(partials_); }

  Sums sums_of(int64_t piece) const {
    if (broadcast() != Broadcast::row) return {};
    A* const row = rows() + piece * sums_.C;
    std::fill_n(row, sums_.C, A{0});
    return {.row = row};
  }

  void add(const A* block, int64_t first, int64_t count, Sums& sums) const {
    const auto sum = [](const A* from, int64_t n) {
      return cpu::sum<double>(n, [=](int64_t i) { return double{from[i]}; });
    };
    if (broadcast() == Broadcast::number) {
      sums.number += sum(block, count);
      return;
    }
    for (int64_t done = 0; done < count;) {
      const int64_t row = (first + done) / sums_.C, column = (first + done) % sums_.C;
      const int64_t size = std::min(sums_.C - column, count - done);
      const A* const from = block + done;
      done += size;
      if (broadcast() == Broadcast::row) {
        cpu::put_all(size, cpu::Sink<A, true>{sums.row + column},
                     [=](int64_t i) { return from[i]; });
        continue;
      }
      sums.number += sum(from, size);
      if (column + size < sums_.C) continue;
      const A total = static_cast<A>(std::exchange(sums.number, 0));
      with_sink([&](auto out) { out.put(row, total); });
    }
  }

  void add_up(CpuStream& stream) const {
    const int64_t C = sums_.C, count = sums_.pieces.count;
    if (broadcast() == Broadcast::row) {
      return with_sink([&](auto out) { cpu::add_pieces(stream, rows(), C, count, C, out); });
    }
    if (broadcast() != Broadcast::number) return;
    double total = 0;
    for (int64_t piece = 0; piece < count; ++piece) total += numbers()[piece];
    put_all(stream, 1, [=](int64_t) { return static_cast<A>(total); });
  }

  template <class F>
  void put_all(CpuStream& stream, int64_t n, const F& f) const {
    with_sink([&](auto out) { cpu::map(stream, n, out, f); });
  }
  template <class F>
  void with_sink(const F& f) const {
    const Grad& to = k_.dx[input_];
    if (k_.dy.dtype() == DType::bf16) return cpu::dispatch_sink<bf16>(to, f);
    cpu::dispatch_sink<A>(to, f);
  }

  const BackwardArguments& k_;
  std::span<const DerivativeLoop> loops_;
  size_t input_;
  SumPieces sums_;
  std::byte* partials_;
};

// The inputs that are not broadcast; one that shares the memory of dy comes last.
std::vector<size_t> whole_inputs(const BackwardArguments& k) {
  std::vector<size_t> inputs, last;
  for (size_t i = 0; i < k.dx.size(); ++i) {
    if (!k.dx[i] || k.broadcasts[i] != Broadcast::none) continue;
    (k.dx[i].view.data() == k.dy.data() ? last : inputs).push_back(i);
  }
  inputs.insert(inputs.end(), last.begin(), last.end());
  return inputs;
}

template <class A>
void backward(CpuStream& stream, const BackwardArguments& k,
              std::span<const DerivativeLoop> loops) {
  std::byte* workspace = k.workspace.data();
  for (size_t i = 0; i < k.dx.size(); ++i) {
    if (!k.dx[i] || k.broadcasts[i] == Broadcast::none) continue;
    Reduction<A>(k, loops, i, workspace).run(stream);
    if (workspace) workspace += SumPieces::bytes(k.dy.shape(), k.broadcasts[i], dtype_of<A>());
  }
  const std::vector<size_t> inputs = whole_inputs(k);
  if (inputs.empty()) return;
  uint32_t wanted = 0;
  for (const size_t i : inputs) wanted |= 1u << i;
  stream.parallel_for(k.dy.numel(), cpu::piece_elements, [&](int64_t begin, int64_t end) {
    Terms<A> terms(k, loops, wanted);
    Destination<A> to;
    for_blocks(begin, end, [&](int64_t first, int64_t count) {
      terms.begin(first, count);
      for (const size_t i : inputs) {
        to.grad = &k.dx[i];
        terms.find(i, to.begin(first));
        to.end(first, count);
      }
    });
  });
}

}  // namespace

void run_forward(CpuStream& stream, const View& y, std::span<const View> x, const void* f,
                 const ValueLoops& loops) {
  if (y.dtype() == DType::f64) return forward<double>(stream, y, x, f, loops.f64);
  forward<float>(stream, y, x, f, loops.f32);
}

void run_backward(CpuStream& stream, const BackwardArguments& k,
                  std::span<const DerivativeLoops> loops) {
  std::array<DerivativeLoop, max_inputs> some{};
  const bool is_f64 = k.dy.dtype() == DType::f64;
  for (size_t i = 0; i < loops.size(); ++i) some[i] = is_f64 ? loops[i].f64 : loops[i].f32;
  const std::span<const DerivativeLoop> all(some.data(), loops.size());
  if (is_f64) return backward<double>(stream, k, all);
  backward<float>(stream, k, all);
}

}  // namespace spool::map_details
