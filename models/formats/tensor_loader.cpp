#include "spool/models/formats/tensor_loader.h"

#include <algorithm>
#include <vector>

#include "spool/models/formats/convert_elements.h"
#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// Bytes of the file that a thread reads at a time: they fit into its cache.
constexpr size_t piece_bytes = size_t{1} << 19;
// Bytes of memory that are filled at a time, unless the tensor is transposed.
constexpr size_t band_bytes = size_t{64} << 20;

using Bytes = std::span<std::byte>;

// A thread's buffers.
struct ThreadBuffers {
  std::vector<std::byte> read, converted;

  static Bytes room(std::vector<std::byte>& buffer, size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return Bytes(buffer).first(bytes);
  }
};

class Loader {
 public:
  Loader(const TensorReader& file, std::span<const TensorLoad> loads, const FileProgress& progress)
      : file_(file),
        progress_(progress),
        pool_(std::min(usable_cores(), /*max threads=*/4)),
        buffers_(static_cast<size_t>(pool_.threads())) {
    for (const TensorLoad& load : loads) total_ += load.from->spec.nbytes();
  }

  void load(const TensorLoad& load) {
    const size_t to_size = size_of(load.to.dtype()), all = load.to.nbytes();
    const size_t from_size = size_of(load.from->spec.type);
    if (load.transposed) {
      load.to.write(0, all, [&](Bytes to) { fill_transposed(load, to); });
      return tell(all / to_size * from_size);
    }
    for (size_t begin = 0; begin < all; begin += band_bytes) {
      const size_t bytes = std::min(band_bytes, all - begin);
      load.to.write(begin, bytes, [&](Bytes to) { fill(load, begin / to_size, to); });
      tell(bytes / to_size * from_size);
    }
  }

 private:
  void tell(size_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

  static bool converts(const TensorLoad& load) {
    return loaded(load.from->spec.type) != load.to.dtype();
  }

  // Fills `to` with the elements from index `first` on.
  void fill(const TensorLoad& load, size_t first, Bytes to) {
    const size_t from_size = size_of(load.from->spec.type), to_size = size_of(load.to.dtype());
    in_pieces(to.size() / to_size, piece_bytes / from_size,
              [&](size_t begin, size_t n, ThreadBuffers& buffers) {
                const Bytes out = to.subspan(begin * to_size, n * to_size);
                if (!converts(load))
                  return file_.read(*load.from, (first + begin) * from_size, out);
                const Bytes in = ThreadBuffers::room(buffers.read, n * from_size);
                file_.read(*load.from, (first + begin) * from_size, in);
                convert(load, first + begin, in, out);
              });
  }

  // Converts the tensor's elements from index `first` on.
  void convert(const TensorLoad& load, size_t first, Bytes in, Bytes out) const {
    const StoredType from = load.from->spec.type;
    const DType to = load.to.dtype();
    convert_elements(in, from, to, out.data());
    const auto bad = first_overflow(in, from, out, to);
    if (!bad) return;
    check_file_setting(false, file_.name(), {"dtype"}, "tensor ", excerpt(load.from->name),
                       ": element ", first + *bad, " is ", element_at(in, from, *bad),
                       ", which is beyond the numbers of ", spool::name(to),
                       "; take a type that has it, such as f32");
  }

  // Rows of the file become columns.
  void fill_transposed(const TensorLoad& load, Bytes to) {
    const size_t from_size = size_of(load.from->spec.type), to_size = size_of(load.to.dtype());
    const auto rows = static_cast<size_t>(load.to.shape()[1]);
    const auto columns = static_cast<size_t>(load.to.shape()[0]);
    if (columns == 0) return;
    const size_t each = std::max<size_t>(1, piece_bytes / (columns * from_size));
    in_pieces(rows, each, [&](size_t begin, size_t n, ThreadBuffers& buffers) {
      Bytes in = ThreadBuffers::room(buffers.read, n * columns * from_size);
      file_.read(*load.from, begin * columns * from_size, in);
      if (converts(load)) {
        const Bytes converted = ThreadBuffers::room(buffers.converted, n * columns * to_size);
        convert(load, begin * columns, in, converted);
        in = converted;
      }
      transpose_elements({.data = in.data(), .rows = n, .columns = columns, .bytes = to_size},
                         to.data() + begin * to_size, /*out_row=*/rows);
    });
  }

  // Calls work(begin, count, buffers) for pieces of [0, extent), on all threads.
  template <class Work>
  void in_pieces(size_t extent, size_t each, const Work& work) {
    struct Context {
      size_t extent, each;
      const Work& work;
      std::vector<ThreadBuffers>& buffers;
    } context{extent, each, work, buffers_};
    const auto run_piece = [](void* context_of_run, int64_t piece, int thread) {
      auto& c = *static_cast<Context*>(context_of_run);
      const size_t begin = static_cast<size_t>(piece) * c.each;
      c.work(begin, std::min(c.each, c.extent - begin), c.buffers.begin()[thread]);
    };
    pool_.run(static_cast<int64_t>(ceil_div(extent, each)), run_piece, &context);
  }

  const TensorReader& file_;
  const FileProgress& progress_;
  size_t done_ = 0, total_ = 0;  // bytes of the file
  ThreadPool pool_;
  std::vector<ThreadBuffers> buffers_;
};

}  // namespace

void load_in_pieces(const TensorReader& file, std::span<const TensorLoad> loads,
                    const FileProgress& progress) {
  Loader loader(file, loads, progress);
  for (const TensorLoad& load : loads) loader.load(load);
}

}  // namespace spool
