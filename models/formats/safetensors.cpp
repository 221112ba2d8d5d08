#include "spool/models/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000;
constexpr const char* metadata_key = "__metadata__";
// One level more than {"name": {"shape": [...]}} has, so that the sentence can name the tensor.
constexpr int header_depth = 4;

// What a header says of one tensor, checked field by field.
class EntryParser {
 public:
  EntryParser(const std::string& file, const std::string& tensor, const json& entry)
      : file_(file), tensor_(tensor), entry_(entry) {
    expect(entry.is_object(), "is not an object");
  }

  StoredTensor parse(uint64_t data_bytes) const {
    const auto [begin, end] = offsets();
    expect(begin <= end && end <= data_bytes, "data_offsets are ", begin, " to ", end, ", of ",
           data_bytes, " bytes of data");
    const StoredSpec spec{shape(), type()};
    expect(spec.nbytes() == end - begin, "data_offsets leave ", end - begin, " bytes for ", spec,
           ", which has ", spec.nbytes());
    return {tensor_, spec, begin};
  }

 private:
  template <class... Parts>
  void expect(bool ok, const Parts&... parts) const {
    check_file(ok, file_, "tensor ", excerpt(tensor_), ": ", parts...);
  }

  const json& field(const char* name) const {
    const auto found = entry_.find(name);
    expect(found != entry_.end(), "has no ", name);
    return *found;
  }

  StoredType type() const {
    const json& value = field("dtype");
    expect(value.is_string(), "dtype is not a string");
    const auto known = parse_stored_type(value.get_ref<const std::string&>());
    expect(known.has_value(), "dtype is ", excerpt(value), ", which is none of the format's");
    return *known;
  }

  Shape shape() const {
    const json& value = field("shape");
    expect(value.is_array(), "shape is not an array");
    expect(value.size() <= Shape::max_rank, "shape has ", value.size(), " dimensions; at most ",
           Shape::max_rank, " can be read");
    int64_t extents[Shape::max_rank] = {};
    uint64_t product = 1;
    for (size_t i = 0; i < value.size(); ++i) {
      expect(value[i].is_number_unsigned(), "shape has ", excerpt(value[i]),
             ", which is not a whole number from 0");
      const auto extent = value[i].get<uint64_t>();
      expect(extent == 0 || product <= max_numel / extent, "shape ", excerpt(value),
             " has too many elements");
      product *= std::max<uint64_t>(extent, 1);
      extents[i] = static_cast<int64_t>(extent);
    }
    return make_shape({extents, value.size()});
  }

  static Shape make_shape(std::span<const int64_t> e) {
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

  struct Offsets {
    uint64_t begin, end;
  };
  Offsets offsets() const {
    const json& value = field("data_offsets");
    expect(value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
               value[1].is_number_unsigned(),
           "data_offsets are ", excerpt(value), ", not two whole numbers from 0");
    return {value[0].get<uint64_t>(), value[1].get<uint64_t>()};
  }

  // Eight bytes each still fit 63 bits.
  static constexpr uint64_t max_numel = uint64_t{1} << 59;

  const std::string& file_;
  const std::string& tensor_;
  const json& entry_;
};

struct Header {
  std::vector<StoredTensor> tensors;
  Metadata metadata;
};

Metadata parse_metadata(const json& value, const std::string& file) {
  check_file(value.is_object(), file, metadata_key, " is not an object");
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    check_file(text.is_string(), file, metadata_key, ": ", excerpt(key), " is not a string");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

void check_no_holes(const std::vector<StoredTensor>& tensors, uint64_t data_bytes,
                    const std::string& file) {
  uint64_t end = 0;
  for (const StoredTensor& t : tensors) {
    check_file(t.begin == end, file, "tensor ", excerpt(t.name), " starts at byte ", t.begin,
               " of the data, and what is before it ends at ", end);
    end += t.spec.nbytes();
  }
  check_file(end == data_bytes, file, "the tensors have ", end, " bytes, and the file has ",
             data_bytes, " bytes of data");
}

Header parse_header(std::string_view text, uint64_t data_bytes, const std::string& file) {
  check_file(text.starts_with('{'), file, "its header does not start with {");
  const json parsed = parse_json(text, file, header_depth);
  Header header;
  for (const auto& [name, value] : parsed.items()) {
    if (name == metadata_key) {
      header.metadata = parse_metadata(value, file);
    } else {
      header.tensors.push_back(EntryParser(file, name, value).parse(data_bytes));
    }
  }
  const auto place = [](const StoredTensor& t) {
    return std::pair(t.begin, t.begin + t.spec.nbytes());
  };
  std::ranges::sort(header.tensors, {}, place);
  check_no_holes(header.tensors, data_bytes, file);
  return header;
}

std::string dump(const nlohmann::ordered_json& header) {
  try {
    return header.dump();
  } catch (const json::exception& e) {
    fail(ErrorKind::invalid, "a name or text for a safetensors file is not UTF-8: ", e.what());
  }
}

// Eight bytes of length, then JSON, with blanks at its end so that the data is aligned.
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
  std::string text = dump(header);
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');
  const uint64_t length = text.size();
  std::string bytes(length_bytes, '\0');
  std::memcpy(bytes.data(), &length, length_bytes);
  return bytes + text;
}

// Sets their begins, one after the other.
std::vector<StoredTensor> end_to_end(std::vector<StoredTensor> tensors, const std::string& file) {
  std::set<std::string_view> names = {metadata_key};
  uint64_t begin = 0;
  for (StoredTensor& t : tensors) {
    check(names.insert(t.name).second, file, ": there cannot be two tensors \"", t.name, "\"");
    t.begin = begin;
    begin += t.spec.nbytes();
  }
  return tensors;
}

std::string read_header(const File& file) {
  const uint64_t size = file.size();
  check_file(size >= length_bytes, file.name(), "is ", size,
             " bytes long, too short for a safetensors file");
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  check_file(length <= max_header_bytes, file.name(), "says its header has ", length,
             " bytes, and at most ", max_header_bytes, " are read: not a safetensors file?");
  check_file(length <= size - length_bytes, file.name(), "says its header has ", length,
             " bytes, and ", size - length_bytes, " follow");
  std::string text(length, '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(text)));
  return text;
}

TensorFileStart begin_file(const std::filesystem::path& path, std::vector<StoredTensor> tensors,
                           const Metadata& metadata) {
  File file = File::create(path);
  tensors = end_to_end(std::move(tensors), file.name());
  const std::string header = format_header(tensors, metadata);
  file.write(0, std::as_bytes(std::span(header)));
  return {std::move(file), header.size(), std::move(tensors)};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<StoredTensor> tensors, const Metadata& metadata)
    : TensorWriter(begin_file(path, std::move(tensors), metadata)) {}

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

}  // namespace spool
