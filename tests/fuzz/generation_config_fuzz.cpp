#include "fuzz.h"
#include "spool/models/families/generation_config.h"
#include "spool/models/families/model_file.h"

namespace {

// A model without tensors: what lacks is noticed when it is loaded.
void write_model() {
  using spool::fuzz::file_in_folder;
  file_in_folder("model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  file_in_folder("config.json", R"({"model_type": "llama", "num_hidden_layers": 1,
    "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 8, "vocab_size": 50,
    "num_attention_heads": 1})");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  static const bool written = (write_model(), true);
  (void)written;
  const auto path = fuzz::file_in_folder("generation_config.json", fuzz::Bytes(data, size));
  fuzz::read([&] { (void)read_generation_config(path.parent_path()); });
  fuzz::read([&] {
    const ModelFile file(path.parent_path());
    for (const int32_t token : file.stop_tokens()) {
      if (token < 0 || token >= 50) std::abort();
    }
  });
  return 0;
}
