#include "spool/models/formats/tensor_loader.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "spool/models/formats/convert_elements.h"
#include "spool/runtime/cpu/thread_pool.h"

namespace spool {
namespace {

// Of a file, that a thread reads at a time: stays in its cache until it has been used.
constexpr size_t piece_bytes = size_t{1} << 19;
// Of memory that is filled at a time, where it can be cut.
constexpr size_t band_bytes = size_t{64} << 20;

using Bytes = std::span<std::byte>;

// What a thread works with.
struct Lane {
  std::vector<std::byte> read, converted;

  static Bytes room(std::vector<std::byte>& buffer, size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return Bytes(buffer).first(bytes);
  }
};

class Loader {
 public:
  explicit Loader(const TensorReader& file)
      : file_(file),
        pool_(static_cast<int>(
            std::clamp(std::thread::hardware_concurrency(), 1u, /*most threads=*/4u))),
        lanes_(static_cast<size_t>(pool_.threads())) {}

  void load(const TensorLoad& load) {
    const size_t to_size = size_of(load.to.dtype()), all = load.to.nbytes();
    if (load.transposed) {
      return write_bytes(load.to, 0, all, [&](Bytes to) { fill_transposed(load, to); });
    }
    for (size_t begin = 0; begin < all; begin += band_bytes) {
      write_bytes(load.to, begin, std::min(band_bytes, all - begin),
                  [&](Bytes to) { fill(load, begin / to_size, to); });
    }
  }

 private:
  static bool converts(const TensorLoad& load) {
    return loaded(load.from->spec.type) != load.to.dtype();
  }

  // Elements from `first` on.
  void fill(const TensorLoad& load, size_t first, Bytes to) {
    const size_t from_size = size_of(load.from->spec.type), to_size = size_of(load.to.dtype());
    in_pieces(to.size() / to_size, piece_bytes / from_size,
              [&](size_t begin, size_t n, Lane& lane) {
                const Bytes out = to.subspan(begin * to_size, n * to_size);
                if (!converts(load))
                  return file_.read(*load.from, (first + begin) * from_size, out);
                const Bytes in = Lane::room(lane.read, n * from_size);
                file_.read(*load.from, (first + begin) * from_size, in);
                convert_elements(in, load.from->spec.type, load.to.dtype(), out.data());
              });
  }

  // Rows of the file become columns.
  void fill_transposed(const TensorLoad& load, Bytes to) {
    const size_t from_size = size_of(load.from->spec.type), to_size = size_of(load.to.dtype());
    const auto rows = static_cast<size_t>(load.to.shape()[1]);
    const auto columns = static_cast<size_t>(load.to.shape()[0]);
    if (columns == 0) return;
    const size_t each = std::max<size_t>(1, piece_bytes / (columns * from_size));
    in_pieces(rows, each, [&](size_t begin, size_t n, Lane& lane) {
      Bytes in = Lane::room(lane.read, n * columns * from_size);
      file_.read(*load.from, begin * columns * from_size, in);
      if (converts(load)) {
        const Bytes converted = Lane::room(lane.converted, n * columns * to_size);
        convert_elements(in, load.from->spec.type, load.to.dtype(), converted.data());
        in = converted;
      }
      transpose_elements({.data = in.data(), .rows = n, .columns = columns, .bytes = to_size},
                         to.data() + begin * to_size, /*out_row=*/rows);
    });
  }

  // work(begin, count, lane) for pieces of [0, extent), on all threads.
  template <class Work>
  void in_pieces(size_t extent, size_t each, const Work& work) {
    struct Context {
      size_t extent, each;
      const Work& work;
      std::vector<Lane>& lanes;
    } context{extent, each, work, lanes_};
    const auto one = [](void* c, int64_t piece, int lane) {
      auto& all = *static_cast<Context*>(c);
      const size_t begin = static_cast<size_t>(piece) * all.each;
      all.work(begin, std::min(all.each, all.extent - begin), all.lanes[static_cast<size_t>(lane)]);
    };
    pool_.run(static_cast<int64_t>((extent + each - 1) / each), one, &context);
  }

  const TensorReader& file_;
  ThreadPool pool_;
  std::vector<Lane> lanes_;
};

}  // namespace

void load_in_pieces(const TensorReader& file, std::span<const TensorLoad> loads) {
  Loader loader(file);
  for (const TensorLoad& load : loads) loader.load(load);
}

}  // namespace spool
