#include "fuzz.h"
#include "spool/models/data/questions.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    constexpr int64_t vocabulary = 50257;
    longest_row(read_questions(path, vocabulary));
  });
  fuzz::read([&] {
    constexpr int64_t bytes = 256;
    if (has_question_lines(path)) longest_row(read_questions(path, *make_byte_tokenizer(), bytes));
  });
  return 0;
}
