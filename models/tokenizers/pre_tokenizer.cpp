#include "spool/models/tokenizers/pre_tokenizer.h"

#include <algorithm>

#include "spool/models/tokenizers/gpt2_pieces.h"
#include "spool/models/tokenizers/utf8.h"

namespace spool {
namespace {

// The expressions of GPT-2 (and, for SmolLM2, single digits), Llama 3 and Qwen2.
constexpr std::string_view known_expressions[] = {
    Gpt2Pieces::expression, R"(\p{N})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

}  // namespace

void PreTokenizer::add(std::string_view expression) {
  stages_.emplace_back(expression);
  const bool known =
      std::ranges::find(known_expressions, expression) != std::end(known_expressions);
  cuts_at_blanks_ = cuts_at_blanks_ && known;
}

PreTokenizer::Walk::Walk(const PreTokenizer& p) {
  for (const RegexPieces& stage : p.stages_) walks_.emplace_back(stage);
}

void PreTokenizer::Walk::start(std::string_view text) {
  stage_ = 0;
  walks_[0].start(text);
}

std::string_view PreTokenizer::Walk::next() {
  if (walks_.size() == 1) return walks_[0].next();
  while (true) {
    const std::string_view piece = walks_[stage_].next();
    if (piece.empty()) {
      if (stage_ == 0) return {};
      --stage_;
    } else if (stage_ + 1 == walks_.size()) {
      return piece;
    } else {
      walks_[++stage_].start(piece);
    }
  }
}

// More text may change the last pieces and the white space at the end; so could what follows a cut.
size_t PreTokenizer::last_cut(std::string_view text,
                              const std::function<bool(size_t)>& allowed) const {
  const size_t lookahead = cuts_at_blanks_ ? 8 : 1024;
  size_t cut = 0, at = 0;
  Walk walk(*this);
  walk.start(text);
  for (std::string_view piece; !(piece = walk.next()).empty(); at += piece.size()) {
    if (at + lookahead > text.size()) break;
    const bool is_between = ends_visibly(text.substr(0, at)) && ends_visibly(piece);
    if (is_between && allowed(at)) cut = at;
  }
  return cut;
}

}  // namespace spool
