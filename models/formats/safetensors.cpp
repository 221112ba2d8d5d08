#include "spool/models/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file_kind.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/integer.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000, max_data_bytes = uint64_t{1} << 62;
constexpr const char* cut_short =
    ": it was cut short, as by a download that has not come to its end; download or copy it again";
constexpr const char* metadata_key = "__metadata__";
// The depth of {"name": {"shape": [...]}} and one more, so that an error names the wrong field.
constexpr int max_header_depth = 4;

struct Header {
  std::vector<StoredTensor> tensors;
  Metadata metadata;
};

Shape make_shape(const std::vector<int64_t>& e) {
  switch (e.size()) {
    case 0:
      return {};
    case 1:
      return {e[0]};
    case 2:
      return {e[0], e[1]};
    case 3:
      return {e[0], e[1], e[2]};
    default:
      return {e[0], e[1], e[2], e[3]};
  }
}

Shape parse_shape(const JsonField& field) {
  constexpr int64_t max_numel = int64_t{1} << 59;  // eight bytes each still fit 63 bits
  const std::vector<JsonField> items = field.items();
  field.expect(items.size() <= Shape::max_rank, "there are ", items.size(),
               " dimensions, and at most ", Shape::max_rank, " can be read");
  std::vector<int64_t> extents;
  int64_t product = 1;
  for (const JsonField& item : items) {
    const auto extent = item.integer<int64_t>(0);
    field.expect(extent == 0 || product <= max_numel / extent, excerpt(field.value()),
                 " has too many elements");
    product *= std::max<int64_t>(extent, 1);
    extents.push_back(extent);
  }
  return make_shape(extents);
}

StoredTensor parse_tensor(const JsonField& entry) {
  const JsonField offsets = entry.member("data_offsets");
  const std::vector<JsonField> ends = offsets.items();
  offsets.expect(ends.size() == 2, excerpt(offsets.value()), " is not [begin, end]");
  const auto begin = ends[0].integer<uint64_t>(0, max_data_bytes);
  const auto end = ends[1].integer<uint64_t>(begin, max_data_bytes);
  const StoredSpec spec{parse_shape(entry.member("shape")),
                        entry.member("dtype").enumerator<StoredType>()};
  offsets.expect(spec.nbytes() == end - begin, "there are ", end - begin, " bytes for ", spec,
                 ", which has ", spec.nbytes());
  return {entry.key(), spec, begin};
}

Metadata parse_metadata(const JsonField& field) {
  Metadata metadata;
  for (const JsonField& text : field.members()) metadata[text.key()] = text.string();
  return metadata;
}

void check_no_holes(const std::vector<StoredTensor>& tensors, uint64_t data_bytes,
                    const std::string& file) {
  uint64_t end = 0;
  for (const StoredTensor& t : tensors) {
    check_file(t.begin == end, file, "tensor ", excerpt(t.name), " starts at byte ", t.begin,
               " of the data, and the one before it ends at ", end);
    end += t.spec.nbytes();
  }
  check_file(end <= data_bytes, file, "its tensors have ", end, " bytes, and ", data_bytes,
             " of them are there", cut_short);
  check_file(end == data_bytes, file, "the tensors have ", end, " bytes, and the file has ",
             data_bytes, " bytes of data");
}

Header parse_header(std::string_view text, uint64_t data_bytes, const std::string& file) {
  check_file(text.starts_with('{'), file, "its header does not start with {");
  Header header;
  for (const JsonField& field : parse_json(text, file, max_header_depth).members()) {
    if (field.key() == metadata_key) {
      header.metadata = parse_metadata(field);
    } else {
      header.tensors.push_back(parse_tensor(field));
    }
  }
  const auto place = [](const StoredTensor& t) {
    return std::pair(t.begin, t.begin + t.spec.nbytes());
  };
  std::ranges::sort(header.tensors, {}, place);
  check_no_holes(header.tensors, data_bytes, file);
  return header;
}

std::string dump_header(const nlohmann::ordered_json& header) {
  try {
    return header.dump();
  } catch (const json::exception&) {
    fail(ErrorKind::invalid, "a name or text for a safetensors file is not UTF-8");
  }
}

// Eight bytes of length, then JSON, padded with spaces so that the data is aligned.
std::string format_header(const std::vector<StoredTensor>& tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  for (const StoredTensor& t : tensors) {
    std::vector<int64_t> extents;
    for (int i = 0; i < t.spec.shape.rank(); ++i) extents.push_back(t.spec.shape[i]);
    header[t.name] = {{"dtype", name(t.spec.type)},
                      {"shape", extents},
                      {"data_offsets", {t.begin, t.begin + t.spec.nbytes()}}};
  }
  std::string text = dump_header(header);
  text.resize(round_up<size_t>(text.size(), length_bytes), ' ');
  const uint64_t length = text.size();
  std::string bytes(length_bytes, '\0');
  std::memcpy(bytes.data(), &length, length_bytes);
  return bytes + text;
}

// Sets the tensors' offsets, one after the other.
std::vector<StoredTensor> place_end_to_end(std::vector<StoredTensor> tensors,
                                           const std::string& file) {
  std::set<std::string_view> names = {metadata_key};
  uint64_t begin = 0;
  for (StoredTensor& t : tensors) {
    check(names.insert(t.name).second, file, ": two tensors are named \"", t.name, "\"");
    t.begin = begin;
    begin += t.spec.nbytes();
  }
  return tensors;
}

std::string read_header(const File& file) {
  const uint64_t size = file.size();
  check_file(size >= length_bytes, file.name(), "is ", size,
             " bytes long, too short for a safetensors file");
  check_is_weights(file);
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  check_file(length <= max_header_bytes, file.name(), "says its header has ", length,
             " bytes, and at most ", max_header_bytes, " are read: is this a safetensors file?");
  check_file(length <= size - length_bytes, file.name(), "says its header has ", length,
             " bytes, and ", size - length_bytes, " follow", cut_short);
  std::string text(length, '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(text)));
  return text;
}

TensorFileStart begin_safetensors_file(const std::filesystem::path& path,
                                       std::vector<StoredTensor> tensors,
                                       const Metadata& metadata) {
  File file = File::create(path);
  tensors = place_end_to_end(std::move(tensors), file.name());
  const std::string header = format_header(tensors, metadata);
  file.write(0, std::as_bytes(std::span(header)));
  return {std::move(file), header.size(), std::move(tensors)};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<StoredTensor> tensors, const Metadata& metadata)
    : TensorWriter(begin_safetensors_file(path, std::move(tensors), metadata)) {}

struct SafetensorsReader::Parsed {
  File file;
  uint64_t data_begin = 0;
  Header header = {};

  explicit Parsed(const std::filesystem::path& path) : file(File::open(path)) {
    const std::string text = read_header(file);
    data_begin = length_bytes + text.size();
    header = parse_header(text, file.size() - data_begin, file.name());
  }
};

SafetensorsReader::SafetensorsReader(Parsed p)
    : TensorReader({std::move(p.file), p.data_begin, std::move(p.header.tensors)}),
      metadata_(std::move(p.header.metadata)) {}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : SafetensorsReader(Parsed(path)) {}

TensorFileStart open_safetensors(const std::filesystem::path& path) {
  SafetensorsReader::Parsed p(path);
  return {std::move(p.file), p.data_begin, std::move(p.header.tensors)};
}

}  // namespace spool
