#include "fuzz.h"
#include "spool/models/data/token_files.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const std::vector files = {fuzz::file_with({data, size})};
  fuzz::read([&] {
    constexpr int64_t vocabulary = 50257;
    const Tokens tokens = open_shards(files, vocabulary);
    std::vector<int32_t> all(static_cast<size_t>(tokens->size()));
    tokens->read(0, all);
  });
  return 0;
}
