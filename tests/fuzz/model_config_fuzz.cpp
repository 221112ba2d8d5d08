// config.json of any family.

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "spool/models/families/families.h"
#include "spool/models/families/llama_config.h"
#include "spool/runtime/files/json.h"

// What a family writes of what it read is read as the same.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const ModelConfig config = model_config(read_json(path));
    if (config.parameter_count() <= 0) std::abort();
    const auto* llama = config.as<LlamaConfig>();
    if (!llama) return;
    nlohmann::json written;
    llama->write(written);
    if (!(model_config({written, "config.json"}) == config)) std::abort();
  });
  return 0;
}
