#include "spool/models/families/llmc_model.h"

#include "spool/models/formats/llmc_header.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int32_t f32_version = 3, bf16_version = 5;

struct LlmcTensor {
  const char* name;       // for a tensor of the layers, without "h.LAYER."
  Shape shape;            // of one layer
  bool per_layer = true;  // false: one for the model
  int64_t padding = 0;    // rows after it
};

// The tensors of a file, in order.
std::vector<LlmcTensor> llmc_tensors(const Gpt2Config& c, int64_t padded) {
  const int64_t C = c.channels;
  return {{.name = "wte.weight",
           .shape = {c.vocabulary, C},
           .per_layer = false,
           .padding = padded - c.vocabulary},
          {.name = "wpe.weight", .shape = {c.context, C}, .per_layer = false},
          {.name = "ln_1.weight", .shape = {C}},
          {.name = "ln_1.bias", .shape = {C}},
          {.name = "attn.c_attn.weight", .shape = {3 * C, C}},
          {.name = "attn.c_attn.bias", .shape = {3 * C}},
          {.name = "attn.c_proj.weight", .shape = {C, C}},
          {.name = "attn.c_proj.bias", .shape = {C}},
          {.name = "ln_2.weight", .shape = {C}},
          {.name = "ln_2.bias", .shape = {C}},
          {.name = "mlp.c_fc.weight", .shape = {4 * C, C}},
          {.name = "mlp.c_fc.bias", .shape = {4 * C}},
          {.name = "mlp.c_proj.weight", .shape = {C, 4 * C}},
          {.name = "mlp.c_proj.bias", .shape = {C}},
          {.name = "ln_f.weight", .shape = {C}, .per_layer = false},
          {.name = "ln_f.bias", .shape = {C}, .per_layer = false}};
}

std::vector<StoredTensor> tensors_of(const Gpt2Config& c, int64_t padded, DType dtype) {
  std::vector<StoredTensor> all;
  uint64_t begin = 0;
  for (const LlmcTensor& t : llmc_tensors(c, padded)) {
    const StoredSpec spec(t.shape, dtype);
    for (int64_t layer = 0; layer < (t.per_layer ? c.layers : 1); ++layer) {
      const std::string prefix = t.per_layer ? sentence("h.", layer, ".") : "";
      all.push_back({prefix + t.name, spec, begin});
      begin += spec.nbytes();
    }
    begin += static_cast<uint64_t>(t.padding * c.channels) * size_of(dtype);
  }
  return all;
}

// A double, because the fields of a corrupt header may overflow an integer.
double file_bytes(const Gpt2Config& c, int64_t padded, DType dtype) {
  const auto C = static_cast<double>(c.channels), L = static_cast<double>(c.layers);
  const double elements = static_cast<double>(padded + c.context + 2) * C + L * (12 * C + 13) * C;
  return static_cast<double>(LlmcHeader::bytes) + elements * static_cast<double>(size_of(dtype));
}

Gpt2Config config_of(const LlmcHeader& header) {
  constexpr struct {
    size_t field;
    const char* name;
    int32_t max;
  } limits[] = {{2, "context", 1 << 24},
                {3, "vocabulary", 1 << 24},
                {4, "layers", 10000},
                {5, "heads", 1 << 20},
                {6, "channels", 1 << 20}};
  for (const auto& [field, name, max] : limits) {
    header.expect(header[field] > 0 && header[field] <= max, field, name,
                  "it must be between 1 and ", max);
  }
  header.expect(header[6] % header[5] == 0, 5, "heads", "it must divide the ", header[6],
                " channels");
  header.expect(header[7] >= header[3] && header[7] <= 1 << 24, 7, "padded vocabulary",
                "it must be between the vocabulary, ", header[3], ", and ", 1 << 24);
  return {.layers = header[4],
          .heads = header[5],
          .channels = header[6],
          .context = header[2],
          .vocabulary = header[3]};
}

}  // namespace

struct LlmcModelReader::Parsed {
  TensorFileStart start;
  Gpt2Config config = {};

  explicit Parsed(const std::filesystem::path& path) : start{File::open(path)} {
    const File& file = start.file;
    const LlmcHeader header(file, "an llm.c model");
    header.expect(header[0] == llmc_model_magic, 0, "magic", llmc_model_magic, " is expected");
    header.expect(header[1] == f32_version || header[1] == bf16_version, 1, "version",
                  "only 3 (f32) and 5 (bf16) can be read");
    const DType dtype = header[1] == f32_version ? DType::f32 : DType::bf16;
    config = config_of(header);
    const double expected = file_bytes(config, header[7], dtype);
    const uint64_t size = file.size();
    check_file(static_cast<double>(size) == expected, file.name(), "is ", size,
               " bytes long, and its header (context ", config.context, ", vocabulary ",
               config.vocabulary, " padded to ", header[7], ", ", config.layers, " layers, ",
               config.channels, " channels, ", spool::name(dtype), ") requires ",
               format_whole(expected));
    start.data_begin = LlmcHeader::bytes;
    start.tensors = tensors_of(config, header[7], dtype);
  }

 private:
  static std::string format_whole(double x) {
    return x < 0x1p62 ? std::to_string(static_cast<int64_t>(x)) : sentence(x);
  }
};

LlmcModelReader::LlmcModelReader(Parsed p) : TensorReader(std::move(p.start)), config_(p.config) {}

LlmcModelReader::LlmcModelReader(const std::filesystem::path& path)
    : LlmcModelReader(Parsed(path)) {}

namespace {

TensorFileStart begin_llmc_file(const std::filesystem::path& path, const Gpt2Config& config,
                                DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "llm.c's model files are f32 or bf16, not ",
        name(dtype));
  check(config.epsilon == Gpt2Config{}.epsilon && config.gelu == Gpt2Config{}.gelu,
        "llm.c's models have an epsilon of 1e-5 and the tanh form of GELU, and this one does not");
  LlmcHeader header;
  header[0] = llmc_model_magic;
  header[1] = dtype == DType::f32 ? f32_version : bf16_version;
  const int64_t padded = round_up<int64_t>(config.vocabulary, 128);  // llm.c's padding
  const int64_t fields[] = {config.context, config.vocabulary, config.layers,
                            config.heads,   config.channels,   padded};
  for (size_t i = 0; i < std::size(fields); ++i) header[2 + i] = static_cast<int32_t>(fields[i]);
  File file = File::create(path);
  header.write(file);
  return {std::move(file), LlmcHeader::bytes, tensors_of(config, padded, dtype)};
}

}  // namespace

LlmcModelWriter::LlmcModelWriter(const std::filesystem::path& path, const Gpt2Config& config,
                                 DType dtype)
    : TensorWriter(begin_llmc_file(path, config, dtype)) {}

}  // namespace spool
