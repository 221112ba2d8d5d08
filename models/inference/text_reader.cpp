// Rank 0 tells the others of a pass by a line of JSON.

#include "spool/models/inference/text_reader.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "spool/kernels/copy.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

constexpr const char* of_reader = "text";  // what ranks exchange of it

Tensor input(const Shape& shape, std::span<const int32_t> values, Stream& stream,
             const Label& label) {
  return make_tensor<int32_t>(shape, values, stream, label);
}

bool has_followers(Stream& stream, const ShardedModel* shared) {
  return shared && stream.ranks() && stream.ranks()->size() > 1 && stream.ranks()->rank() == 0;
}

}  // namespace

TextReader::TextReader(Model& model, Stream& stream, int64_t texts, int64_t tokens,
                       const ShardedModel* shared)
    : model_(model),
      stream_(stream),
      leads_(has_followers(stream, shared)),
      errors_(std::uncaught_exceptions()),
      beside_steps_(stream.ranks()),
      cache_(shared ? shared_.emplace(model, *shared).make_cache(texts, tokens)
                    : model.make_cache(texts, tokens)),
      logits_({Shape{texts, model.shape().padded_vocabulary()}}, stream, {.name = "logits"}),
      token_pass_(model, logits_, stream) {
  say({{"do", "open"}, {"texts", texts}, {"tokens", tokens}});
}

TextReader::~TextReader() {
  if (std::uncaught_exceptions() > errors_) return;  // ranks that wait are told why by others
  try {
    say({{"do", "close"}});
  } catch (const std::exception&) {  // nothing can be exchanged any more, as the next try will say
  }
}

// Exchanges of the passes before must have ended.
void TextReader::say(const nlohmann::json& words) {
  if (!leads_) return;
  stream_.synchronize();
  stream_.ranks()->gather(of_reader, words.dump());
}

void TextReader::read(const TokenPass::Rows& next, bool last) {
  if (leads_) {
    say({{"do", "read"},
         {"tokens", next.tokens},
         {"positions", next.positions},
         {"first", next.first},
         {"last", last}});
  }
  const int64_t B = rows(), n = std::ssize(next.tokens) / B;
  if (!shared_) {
    token_pass_.prepare(cache_);
    if (token_pass_.takes(n)) {
      const auto position = static_cast<int32_t>(length());
      constexpr int32_t first = 0;
      TokenPass::Rows whole = next;
      if (whole.positions.empty()) whole.positions = {&position, 1}, whole.first = {&first, 1};
      return token_pass_.run(cache_, whole);
    }
  }
  constexpr Label of_tokens{.name = "tokens", .purpose = Purpose::input};
  constexpr Label of_positions{.name = "positions", .purpose = Purpose::input};
  constexpr Label of_first{.name = "first", .purpose = Purpose::input};
  Tape tape(stream_, {.recording = false, .training = false});
  Text text(tape.input(input({B, n}, next.tokens, stream_, of_tokens)));
  if (!next.positions.empty()) {
    text.positions = tape.input(input({B, n}, next.positions, stream_, of_positions));
    text.first = tape.input(input({B}, next.first, stream_, of_first));
  }
  const Tensor hidden =
      (shared_ ? shared_->hidden(tape, text, cache_) : model_.hidden(text, cache_)).tensor();
  if (!last) return;
  const Tensor rows = last_of(hidden, n);
  const Var logits = shared_ ? shared_->logits(tape, rows) : model_.logits(tape.input(rows));
  launch(Cast{.out = logits_.slice({0, B}), .in = logits.tensor()}, stream_);
}

// Of (B, n, C), the last token of each text: (B, C).
Tensor TextReader::last_of(const Tensor& hidden, int64_t n) const {
  const int64_t B = rows(), C = model_.shape().channels;
  if (B == 1) return hidden.reshape({n, C}).slice({n - 1, n});
  const Tensor last({Shape{B, C}, hidden.dtype()}, stream_, {.name = "last"});
  launch(StridedCopy{.out = last,
                     .in = hidden,
                     .rows = B,
                     .width = C,
                     .out_stride = C,
                     .in_stride = n * C,
                     .in_first = (n - 1) * C},
         stream_);
  return last;
}

void TextReader::clear() {
  say({{"do", "clear"}});
  cache_.clear();
}

void TextReader::keep_rows(std::span<const int64_t> rows) {
  say({{"do", "keep"}, {"rows", rows}});
  cache_.keep_rows(rows);
}

void follow_reader(Model& model, Stream& stream, const ShardedModel& shared) {
  const auto heard = [&] {
    stream.synchronize();
    return nlohmann::json::parse(stream.ranks()->gather(of_reader, "").front());
  };
  const nlohmann::json open = heard();
  TextReader reader(model, stream, open["texts"], open["tokens"], &shared);
  for (;;) {
    const nlohmann::json words = heard();
    const std::string what = words["do"];
    if (what == "close") return;
    if (what == "clear") {
      reader.clear();
    } else if (what == "keep") {
      reader.keep_rows(words["rows"].get<std::vector<int64_t>>());
    } else {
      const std::vector<int32_t> tokens = words["tokens"], positions = words["positions"],
                                 first = words["first"];
      reader.read({.tokens = tokens, .positions = positions, .first = first}, words["last"]);
    }
  }
}

}  // namespace spool
