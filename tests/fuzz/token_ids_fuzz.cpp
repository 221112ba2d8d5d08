#include "fuzz.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  static const BytePairEncoding encoding = [] {
    std::string bytes;
    for (int i = 0; i < BytePairEncoding::byte_count; ++i) bytes.push_back(static_cast<char>(i));
    return BytePairEncoding(bytes);
  }();
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] { const Gpt2Tokenizer tokenizer(encoding, read_token_ids(path, encoding)); });
  return 0;
}
