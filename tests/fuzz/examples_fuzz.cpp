#include <algorithm>

#include "fuzz.h"
#include "spool/models/data/example_reader.h"
#include "spool/models/data/example_rows.h"

// The bytes are lines of examples, and a format of chats.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const std::vector files{fuzz::file_with({data, size})};
  fuzz::read([&] {
    constexpr int64_t seq = 16, most = 8;
    (void)are_examples(files);
    const auto tokenizer = make_byte_tokenizer();
    const auto examples =
        ExampleReader{.tokenizer = *tokenizer, .options = {.seq = seq}}.read(files);
    const RowList list(examples, {0, examples->size()}, seq, /*packs=*/true);
    const TrainingExamples rows(list, /*seed=*/1);
    TokenBatch batch;
    rows.fill({0, std::min(rows.rows(), most)}, batch);
  });
  fuzz::read([&] { read_chat_format(files.front()); });
  return 0;
}
