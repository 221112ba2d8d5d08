// Computes tiles by oneDNN's matmul primitive, https://oneapi-src.github.io/oneDNN.  Each tile is
// one single-threaded primitive; primitives are created once for a shape and cached.

#include "spool/kernels/cpu/matmul.h"

#if SPOOL_ONEDNN

#include <compare>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "spool/runtime/log.h"

// OpenMP's functions; not every compiler has its header.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace spool::cpu {
namespace {

using dnnl::memory;

// Keeps oneDNN from starting threads: each call is part of a loop that our threads share.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::data_type type_of(DType t) {
  return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A tile of a product, with everything that decides how it is computed.
struct TileShape {
  int64_t m, n, k;              // extents of the tile
  int64_t a_row, b_row, c_row;  // elements from one row to the next
  float alpha;
  DType in, out;
  bool a_transposed, b_transposed, accumulate, bias;
  auto operator<=>(const TileShape&) const = default;
};

struct Primitive {
  dnnl::matmul multiply;
  memory::desc a, b, c, bias, scratch;
  std::string implementation;
};

Primitive make(const TileShape& t) {
  const OneThread one;
  const auto in = type_of(t.in);
  using Dims = memory::dims;
  const memory::desc a({t.m, t.k}, in, t.a_transposed ? Dims{1, t.a_row} : Dims{t.a_row, 1});
  const memory::desc b({t.k, t.n}, in, t.b_transposed ? Dims{1, t.b_row} : Dims{t.b_row, 1});
  const memory::desc c({t.m, t.n}, type_of(t.out), Dims{t.c_row, 1});
  const memory::desc bias =
      t.bias ? memory::desc({1, t.n}, in, memory::format_tag::ab) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (t.alpha != 1) attributes.set_output_scales(/*mask=*/0, {t.alpha});
  if (t.accumulate) {
    dnnl::post_ops add;
    add.append_sum(1);
    attributes.set_post_ops(add);
  }
  const auto description = t.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc chosen(description, attributes, engine());
  return {dnnl::matmul(chosen), a, b, c, bias, chosen.scratchpad_desc(), chosen.impl_info_str()};
}

// Why a primitive cannot be used; empty if it can.
std::string refusal(const Primitive& p, size_t scratch) {
  if (p.implementation.starts_with("ref")) return "on this processor it has only a slow reference";
  const size_t needed = p.scratch.get_size();
  if (needed <= scratch) return "";
  return sentence("it needs ", needed, " bytes of scratch for a tile, more than the ", scratch,
                  " it has");
}

// Null if oneDNN has no usable primitive within the scratch.
const Primitive* find(const TileShape& shape, size_t scratch) {
  static std::mutex mutex;
  static std::map<TileShape, std::unique_ptr<Primitive>> cache;
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = cache.try_emplace(shape);
  if (!fresh) return at->second.get();
  std::string why;
  try {
    auto primitive = std::make_unique<Primitive>(make(shape));
    why = refusal(*primitive, scratch);
    if (why.empty()) at->second = std::move(primitive);
  } catch (const dnnl::error& e) {
    why = sentence("it does not support this processor: ", e.what());
  }
  if (!at->second) {
    static bool warned = false;  // the first is a warning, later ones are at level debug
    logger().log(std::exchange(warned, true) ? spdlog::level::debug : spdlog::level::warn,
                 "plain loops replace oneDNN for a product of {} by {} by {} in {}: {}", shape.m,
                 shape.k, shape.n, name(shape.in), why);
  }
  return at->second.get();
}

struct Operands {
  std::byte *a, *b, *c, *bias, *scratch;
};

void execute(const Primitive& p, const Operands& at) {
  const OneThread one;
  thread_local dnnl::stream stream(engine());
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(p.a, engine(), at.a)},
      {DNNL_ARG_WEIGHTS, memory(p.b, engine(), at.b)},
      {DNNL_ARG_DST, memory(p.c, engine(), at.c)},
      {DNNL_ARG_SCRATCHPAD, memory(p.scratch, engine(), at.scratch)}};
  if (at.bias) arguments.emplace(DNNL_ARG_BIAS, memory(p.bias, engine(), at.bias));
  p.multiply.execute(stream, arguments);
}

TileShape shape_of(const Matmul& k, int64_t m, int64_t n) {
  return {.m = m,
          .n = n,
          .k = k.K(),
          .a_row = k.a_stride(),
          .b_row = k.b_stride(),
          .c_row = k.c_stride(),
          .alpha = static_cast<float>(k.alpha),
          .in = k.a.dtype(),
          .out = k.c.view.dtype(),
          .a_transposed = k.a_transposed,
          .b_transposed = k.b_transposed,
          .accumulate = k.c.accumulate,
          .bias = bool(k.bias)};
}

Operands operands(const Matmul& k, int64_t m, int64_t n) {
  const auto in = static_cast<int64_t>(size_of(k.a.dtype()));
  const auto out = static_cast<int64_t>(size_of(k.c.view.dtype()));
  return {.a = k.a.data() + in * m * (k.a_transposed ? 1 : k.a_stride()),
          .b = k.b.data() + in * n * (k.b_transposed ? k.b_stride() : 1),
          .c = k.c.view.data() + out * (m * k.c_stride() + n),
          .bias = k.bias ? k.bias.data() + in * n : nullptr,
          .scratch = nullptr};
}

}  // namespace

bool multiply_onednn(const MatmulBatch& all, const Tiling& t, CpuStream& stream) {
  const Matmul& k = all.first;
  if (k.a.dtype() == DType::f64) return false;
  const size_t scratch = tile_scratch(k, t);
  const int64_t last_m = k.M() - (t.row_tiles - 1) * t.rows;
  const int64_t last_n = k.N() - (t.column_tiles - 1) * t.columns;
  const Primitive* by_size[2][2];  // [last row of tiles][last column]
  for (int i : {0, 1}) {
    for (int j : {0, 1}) {
      by_size[i][j] = find(shape_of(k, i ? last_m : t.rows, j ? last_n : t.columns), scratch);
      if (!by_size[i][j]) return false;
    }
  }
  const int64_t tiles = all.count * t.tiles();
  stream.parallel_for(tiles, 1, [&](int64_t number, int64_t, int lane) {
    const int64_t tile = number % t.tiles();
    const int64_t i = tile / t.column_tiles, j = tile % t.column_tiles;
    Operands at = operands(all.at(number / t.tiles()), i * t.rows, j * t.columns);
    const int64_t place = tiles < stream.threads() ? number : lane;
    at.scratch = k.workspace.data() + static_cast<size_t>(place) * scratch;
    execute(*by_size[i == t.row_tiles - 1][j == t.column_tiles - 1], at);
  });
  return true;
}

}  // namespace spool::cpu

#else

namespace spool::cpu {
bool multiply_onednn(const MatmulBatch&, const Tiling&, CpuStream&) { return false; }
}  // namespace spool::cpu

#endif
