#include "fuzz.h"
#include "spool/models/tokenizers/json_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const auto tokenizer = read_tokenizer_json(path);
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::vector<int32_t> tokens;
    tokenizer->encode(text, tokens);
    (void)tokenizer->decode(tokens);
    (void)tokenizer->boundary(text);
  });
  return 0;
}
