#include "tests/models/inference/generator_testing.h"

namespace spool::testing {
namespace {

// How many last tokens of a text the generator still has after reading them one by one.
int64_t kept_tokens(int64_t tokens, int64_t context) {
  int64_t length = 0;
  for (int64_t i = 0; i < tokens; ++i) length = (length == context ? context / 2 : length) + 1;
  return length;
}

}  // namespace

Numbers whole_logits(Gpt2& model, const std::vector<int32_t>& text, Stream& stream) {
  const int64_t n = kept_tokens(static_cast<int64_t>(text.size()), model.shape().context);
  const std::vector<int32_t> last(text.end() - n, text.end());
  const Tensor hidden = whole_hidden(model, integers({1, n}, last, stream));
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor row = hidden.reshape({n, model.shape().channels}).slice({n - 1, n});
  return values(model.logits(tape.input(row)).tensor());
}

}  // namespace spool::testing
