#include "spool/models/formats/tensor_file.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "spool/models/formats/convert_elements.h"
#include "spool/models/formats/tensor_loader.h"
#include "spool/runtime/bulk_hash.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

// Size of a host buffer; there are at most two.
constexpr size_t buffer_bytes = size_t{8} << 20;

using Buffer = std::vector<std::byte>;

// Cuts a matrix that is (R, C) in memory and (C, R) in the file into bands of rows of memory.  Each
// row in the file has a piece of each band.
struct Bands {
  size_t R, C, rows;

  Bands(const Shape& shape, size_t element_bytes)
      : R(static_cast<size_t>(shape[0])), C(static_cast<size_t>(shape[1])) {
    rows = std::max<size_t>(1, buffer_bytes / std::max<size_t>(1, C * element_bytes));
    rows = std::min(rows, R);
  }

  // Calls work(first row, rows) for each band.
  template <class Work>
  void for_each(const Work& work) const {
    if (C == 0) return;
    for (size_t r = 0; r < R; r += rows) work(r, std::min(rows, R - r));
  }
};

void save_transposed(TensorWriter& file, const StoredTensor& stored, const TensorContents& t) {
  const size_t element = size_of(t.dtype());
  const Bands bands(t.shape(), element);
  Buffer band(bands.rows * bands.C * element), pieces(band.size());
  bands.for_each([&](size_t first, size_t rows) {
    const size_t piece = rows * element;
    t.read(first * bands.C * element, std::span(band).first(piece * bands.C));
    transpose_elements({.data = band.data(), .rows = rows, .columns = bands.C, .bytes = element},
                       pieces.data(),
                       /*out_row=*/rows);
    for (size_t c = 0; c < bands.C; ++c) {
      file.write(stored, (c * bands.R + first) * element,
                 std::span(pieces).subspan(c * piece, piece));
    }
  });
}

// Calls work(first byte, bytes) for each piece.
template <class Work>
void for_each_piece(const TensorContents& t, const Work& work) {
  Buffer buffer(std::min(buffer_bytes, t.nbytes()));
  for (size_t begin = 0; begin < t.nbytes(); begin += buffer.size()) {
    const auto bytes = std::span(buffer).first(std::min(buffer.size(), t.nbytes() - begin));
    t.read(begin, bytes);
    work(begin, std::span<const std::byte>(bytes));
  }
}

void save_untransposed(TensorWriter& file, const StoredTensor& stored, const TensorContents& t) {
  for_each_piece(
      t, [&](size_t begin, std::span<const std::byte> bytes) { file.write(stored, begin, bytes); });
}

Shape stored_shape(const NamedTensor& named) {
  const Shape& shape = named.tensor.shape();
  if (!named.transposed) return shape;
  check(shape.rank() == 2, "tensor \"", named.name, "\": ", shape,
        " is not a matrix and cannot be stored transposed");
  return {shape[1], shape[0]};
}

StoredSpec stored_spec(const NamedTensor& t) { return {stored_shape(t), t.tensor.dtype()}; }

// The file's tensor of this name; throws unless it can be loaded into the given one.
const StoredTensor& find_loadable(const TensorReader& file, const NamedTensor& named) {
  const StoredTensor* stored = file.find(named.name);
  check_file(stored, file.name(), "has no tensor \"", named.name, "\", ", named.tensor.spec());
  const Shape wanted = stored_shape(named);
  check_file(stored->spec.shape == wanted, file.name(), "tensor \"", named.name, "\" is ",
             stored->spec.shape, ", and ", wanted, " is expected",
             named.transposed ? ", stored as (in, out)" : "");
  const StoredType from = stored->spec.type, to = spool::stored(named.tensor.dtype());
  check_file(from == to || (is_floating(from) && is_floating(to)), file.name(), "tensor \"",
             named.name, "\" is ", name(from), ", which cannot become ",
             spool::name(named.tensor.dtype()));
  return *stored;
}

void check_no_surplus(const TensorReader& file, std::span<const NamedTensor> tensors,
                      const std::function<bool(std::string_view)>& ignored) {
  std::set<std::string_view> wanted;
  for (const NamedTensor& named : tensors) wanted.insert(named.name);
  for (const StoredTensor& stored : file.tensors()) {
    check_file(wanted.contains(stored.name) || (ignored && ignored(stored.name)), file.name(),
               "tensor ", excerpt(stored.name), ", ", stored.spec, ", is none of the ",
               wanted.size(), " expected ones");
  }
}

// The index after the last tensor of each shard; there is at least one shard.
std::vector<size_t> ends_of_shards(std::span<const NamedTensor> tensors, uint64_t shard_bytes) {
  std::vector<size_t> ends;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t own = tensors[i].tensor.nbytes();
    if (bytes > 0 && bytes + own > shard_bytes) {
      ends.push_back(i);
      bytes = 0;
    }
    bytes += own;
  }
  ends.push_back(tensors.size());
  return ends;
}

}  // namespace

void save_tensors(TensorWriter& file, std::span<const NamedTensor> tensors) {
  std::map<std::string_view, const StoredTensor*> entries;
  for (const StoredTensor& t : file.tensors()) entries[t.name] = &t;
  for (const NamedTensor& t : tensors) {
    const auto entry = entries.find(t.name);
    check(entry != entries.end() && entry->second->spec == stored_spec(t), file.name(),
          ": was not opened for a tensor \"", t.name, "\", ", stored_spec(t));
    (t.transposed ? save_transposed : save_untransposed)(file, *entry->second, t.tensor);
  }
  file.finish();
}

void save_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                  const Metadata& metadata) {
  std::vector<StoredTensor> entries;
  for (const NamedTensor& t : tensors) entries.push_back({t.name, stored_spec(t)});
  SafetensorsWriter file(path, std::move(entries), metadata);
  save_tensors(file, tensors);
}

void save_model_tensors(const std::filesystem::path& folder, std::span<const NamedTensor> tensors,
                        const Metadata& metadata, uint64_t shard_bytes) {
  const std::vector<size_t> ends = ends_of_shards(tensors, shard_bytes);
  if (ends.size() == 1) return save_tensors(folder / weights_name, tensors, metadata);
  nlohmann::json map = nlohmann::json::object();
  uint64_t total = 0;
  for (size_t i = 0, first = 0; i < ends.size(); first = ends[i++]) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, ends.size());
    const auto some = tensors.subspan(first, ends[i] - first);
    save_tensors(folder / name, some, metadata);
    for (const NamedTensor& t : some) {
      map[t.name] = name;
      total += t.tensor.nbytes();
    }
  }
  const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_text_file_atomically(folder / weights_index_name, index.dump(2) + "\n");
}

uint64_t hash_of(std::span<const NamedTensor> tensors) {
  BulkHash hash;
  for (const NamedTensor& t : tensors) {
    const std::string what = sentence(t.name, ' ', stored_spec(t));
    hash.add(std::as_bytes(std::span(what)));
    for_each_piece(t.tensor, [&](size_t, std::span<const std::byte> piece) { hash.add(piece); });
  }
  return hash.state();
}

void load_tensors(const TensorReader& file, std::span<const NamedTensor> tensors,
                  const std::function<bool(std::string_view)>& ignored,
                  const FileProgress& progress) {
  std::vector<TensorLoad> loads;
  for (const NamedTensor& t : tensors) {
    loads.push_back({.from = &find_loadable(file, t), .to = t.tensor, .transposed = t.transposed});
  }
  check_no_surplus(file, tensors, ignored);
  load_in_pieces(file, loads, progress);
}

}  // namespace spool
