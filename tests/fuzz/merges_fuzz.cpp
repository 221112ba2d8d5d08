#include <cstdlib>

#include "fuzz.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const Gpt2Tokenizer tokenizer(read_merges(path));
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::vector<int32_t> tokens;
    tokenizer.encode(text, tokens);
    if (tokenizer.decode(tokens) != text) std::abort();
  });
  return 0;
}
