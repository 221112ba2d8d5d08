#include "fuzz.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] { read_llmc_tokenizer(path); });
  return 0;
}
