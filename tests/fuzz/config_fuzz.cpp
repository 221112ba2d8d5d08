#include "fuzz.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/runtime/files/json.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] { gpt2_config(read_json(path)); });
  return 0;
}
