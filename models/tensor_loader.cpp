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

// Of a band.  A matrix that is transposed is better read whole, as its bands are all over the file.
constexpr size_t band_bytes = size_t{4} << 20, matrix_bytes = size_t{64} << 20;

using Buffer = std::vector<std::byte>;

void make_room(Buffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
}

// Rows of a matrix as memory has it.  What is not transposed is a matrix of one column.
struct Band {
  const TensorLoad* load = nullptr;
  size_t first = 0, rows = 0;  // of all_rows
  size_t all_rows = 0, columns = 0;

  size_t count() const { return rows * columns; }
  size_t from_size() const { return size_of(load->from->spec.type); }
  size_t to_size() const { return size_of(load->to.dtype()); }
  bool converts() const { return loaded(load->from->spec.type) != load->to.dtype(); }
};

void cut(const TensorLoad& load, std::vector<Band>& bands) {
  const Shape& shape = load.to.shape();
  if (load.to.numel() == 0) return;
  Band band{.load = &load, .columns = load.transposed ? static_cast<size_t>(shape[1]) : 1};
  band.all_rows = static_cast<size_t>(load.to.numel()) / band.columns;
  const size_t row_bytes = std::max(band.from_size(), band.to_size()) * band.columns;
  const size_t most = (load.transposed ? matrix_bytes : band_bytes) / row_bytes;
  for (; band.first < band.all_rows; band.first += band.rows) {
    band.rows = std::min(std::max<size_t>(1, most), band.all_rows - band.first);
    bands.push_back(band);
  }
}

class BandReader {
 public:
  explicit BandReader(const TensorReader& file)
      : file_(file),
        pool_(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u,
                                          /*most threads=*/4u))) {}

  // The band as memory has it, until the next call but one.
  std::span<const std::byte> prepare(const Band& band) {
    Buffer& out = out_[turn_ ^= 1];
    Buffer& read = band.load->transposed || band.converts() ? read_ : out;
    Buffer& elements = !band.load->transposed ? read : band.converts() ? turned_ : out;
    make_room(read, band.count() * band.from_size());
    make_room(elements, band.count() * band.from_size());
    make_room(out, band.count() * band.to_size());
    read_band(band, read);
    if (band.load->transposed) turn(band, read, elements);
    if (band.converts()) convert(band, elements, out);
    return std::span(out).first(band.count() * band.to_size());
  }

 private:
  // work(piece) for all of [0, extent), in pieces of so many, on all threads.
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

  // Unless the band is the whole matrix, every row in the file has a piece of it.
  void read_band(const Band& band, Buffer& to) {
    const StoredTensor& from = *band.load->from;
    const size_t element = band.from_size(), piece = band.rows * element;
    if (band.load->transposed && band.rows < band.all_rows) {
      return in_pieces(band.columns, 64, [&](size_t begin, size_t end) {
        for (size_t c = begin; c < end; ++c) {
          file_.read(from, (c * band.all_rows + band.first) * element,
                     std::span(to).subspan(c * piece, piece));
        }
      });
    }
    in_pieces(band.count() * element, size_t{1} << 20, [&](size_t begin, size_t end) {
      file_.read(from, band.first * element + begin, std::span(to).subspan(begin, end - begin));
    });
  }

  void turn(const Band& band, const Buffer& from, Buffer& to) {
    const size_t row = band.columns * band.from_size();
    in_pieces(band.rows, 64, [&](size_t begin, size_t end) {
      transpose_elements(from.data(), {band.columns, band.rows}, {begin, end}, band.from_size(),
                         to.data() + begin * row);
    });
  }

  void convert(const Band& band, const Buffer& from, Buffer& to) {
    in_pieces(band.count(), size_t{1} << 18, [&](size_t begin, size_t end) {
      const auto in =
          std::span(from).subspan(begin * band.from_size(), (end - begin) * band.from_size());
      convert_elements(in, band.load->from->spec.type, band.load->to.dtype(),
                       to.data() + begin * band.to_size());
    });
  }

  const TensorReader& file_;
  ThreadPool pool_;
  Buffer read_, turned_, out_[2];
  size_t turn_ = 0;
};

}  // namespace

void load_in_bands(const TensorReader& file, std::span<const TensorLoad> loads) {
  std::vector<Band> bands;
  for (const TensorLoad& load : loads) cut(load, bands);
  if (bands.empty()) return;
  BandReader reader(file);
  const auto prepare = [&](size_t i) {
    return std::async(std::launch::async,
                      [&reader, &bands, i] { return reader.prepare(bands[i]); });
  };
  auto ahead = prepare(0);
  for (size_t i = 0; i < bands.size(); ++i) {
    const std::span<const std::byte> ready = ahead.get();
    if (i + 1 < bands.size()) ahead = prepare(i + 1);
    write_bytes(bands[i].load->to, bands[i].first * bands[i].columns * bands[i].to_size(), ready);
  }
}

}  // namespace spool
