#include "fuzz.h"
#include "spool/models/data/examples.h"

// The bytes are a format of chats, and lines of examples.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] { read_chat_format(path); });
  fuzz::read([&] {
    const auto tokenizer = make_byte_tokenizer();
    Examples examples;
    examples.read(path, *tokenizer, /*chat=*/{}, {.seq = 16});
    rows_of(examples, /*seq=*/16, /*packs=*/true);
  });
  return 0;
}
