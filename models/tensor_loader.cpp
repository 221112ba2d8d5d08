#include "spool/models/tensor_loader.h"

#include <algorithm>
#include <future>
#include <thread>
#include <vector>

#include "spool/models/convert_elements.h"
#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/shape.h"

namespace spool {
namespace {

// Of a band that is not as memory has it.  A matrix that is transposed is better read whole, as its
// bands are all over the file.
constexpr size_t band_bytes = size_t{8} << 20, matrix_bytes = size_t{64} << 20;

using Buffer = std::vector<std::byte>;

void make_room(Buffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
}

// Rows of a matrix as memory has it.  What is not transposed is a matrix of one column.
struct Band {
  const TensorLoad* load = nullptr;
  size_t first = 0, rows = 0;  // of all_rows
  size_t all_rows = 0, columns = 0;
  size_t number = 0;  // of the band

  size_t count() const { return rows * columns; }
  size_t from_size() const { return size_of(load->from->spec.type); }
  size_t to_size() const { return size_of(load->to.dtype()); }
  bool is_direct() const { return !load->transposed && !converts(); }
  bool converts() const { return loaded(load->from->spec.type) != load->to.dtype(); }
};

void cut(const TensorLoad& load, std::vector<Band>& bands) {
  const Shape& shape = load.to.shape();
  if (load.to.numel() == 0) return;
  Band band{.load = &load, .columns = load.transposed ? static_cast<size_t>(shape[1]) : 1};
  band.all_rows = static_cast<size_t>(load.to.numel()) / band.columns;
  const size_t row_bytes = std::max(band.from_size(), band.to_size()) * band.columns;
  const size_t most = (load.transposed ? matrix_bytes : band_bytes) / row_bytes;
  const size_t rows = band.is_direct() ? band.all_rows : std::max<size_t>(1, most);
  for (; band.first < band.all_rows; band.first += band.rows) {
    band.rows = std::min(rows, band.all_rows - band.first);
    band.number = bands.size();
    bands.push_back(band);
  }
}

class BandLoader {
 public:
  explicit BandLoader(const TensorReader& file)
      : file_(file),
        pool_(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u,
                                          /*most threads=*/4u))) {}

  // What can be done before the band's turn.  One band is ahead of another at most.
  std::future<void> read_ahead(const Band& band) {
    if (band.is_direct()) return {};
    return std::async(std::launch::async, [this, &band] { read(band, read_[band.number % 2]); });
  }

  void load(const Band& band) {
    write_bytes(band.load->to, band.first * band.columns * band.to_size(),
                band.count() * band.to_size(), [&](std::span<std::byte> to) { fill(band, to); });
  }

 private:
  void fill(const Band& band, std::span<std::byte> to) {
    const Buffer& from = read_[band.number % 2];
    if (band.is_direct()) {
      in_pieces(to.size(), piece_bytes, [&](size_t begin, size_t end) {
        file_.read(*band.load->from, band.first * band.from_size() + begin,
                   to.subspan(begin, end - begin));
      });
    } else if (!band.load->transposed) {
      convert(band, from, to);
    } else if (!band.converts()) {
      turn(band, from, to);
    } else {
      make_room(turned_, band.count() * band.from_size());
      turn(band, from, turned_);
      convert(band, turned_, to);
    }
  }

  // Unless the band is the whole matrix, every row in the file has a piece of it.
  void read(const Band& band, Buffer& to) {
    const StoredTensor& from = *band.load->from;
    const size_t element = band.from_size(), piece = band.rows * element;
    make_room(to, band.count() * element);
    if (!band.load->transposed || band.rows == band.all_rows) {
      return file_.read(from, band.first * element, std::span(to).first(band.columns * piece));
    }
    for (size_t c = 0; c < band.columns; ++c) {
      file_.read(from, (c * band.all_rows + band.first) * element,
                 std::span(to).subspan(c * piece, piece));
    }
  }

  void turn(const Band& band, std::span<const std::byte> from, std::span<std::byte> to) {
    const size_t row = band.columns * band.from_size();
    in_pieces(band.rows, /*each=*/64, [&](size_t begin, size_t end) {
      transpose_elements(from.data(), {band.columns, band.rows}, {begin, end}, band.from_size(),
                         to.data() + begin * row);
    });
  }

  void convert(const Band& band, std::span<const std::byte> from, std::span<std::byte> to) {
    in_pieces(band.count(), piece_bytes / sizeof(float), [&](size_t begin, size_t end) {
      const auto some = from.subspan(begin * band.from_size(), (end - begin) * band.from_size());
      convert_elements(some, band.load->from->spec.type, band.load->to.dtype(),
                       to.data() + begin * band.to_size());
    });
  }

  // work(begin, end) for pieces of [0, extent) of so many each, on all threads.
  template <class Work>
  void in_pieces(size_t extent, size_t each, const Work& work) {
    struct Context {
      size_t extent, each;
      const Work& work;
    } context{extent, each, work};
    const auto one = [](void* c, int64_t piece, int) {
      const auto& [all, some, f] = *static_cast<Context*>(c);
      const size_t begin = static_cast<size_t>(piece) * some;
      f(begin, std::min(begin + some, all));
    };
    pool_.run(static_cast<int64_t>((extent + each - 1) / each), one, &context);
  }

  static constexpr size_t piece_bytes = size_t{1} << 20;

  const TensorReader& file_;
  ThreadPool pool_;
  Buffer read_[2], turned_;
};

}  // namespace

void load_in_bands(const TensorReader& file, std::span<const TensorLoad> loads) {
  std::vector<Band> bands;
  for (const TensorLoad& load : loads) cut(load, bands);
  if (bands.empty()) return;
  BandLoader loader(file);
  auto ahead = loader.read_ahead(bands[0]);
  for (size_t i = 0; i < bands.size(); ++i) {
    if (ahead.valid()) ahead.get();
    if (i + 1 < bands.size()) ahead = loader.read_ahead(bands[i + 1]);
    loader.load(bands[i]);
  }
}

}  // namespace spool
