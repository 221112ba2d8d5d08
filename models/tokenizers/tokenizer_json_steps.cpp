#include "spool/models/tokenizers/tokenizer_json_steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/byte_alphabet.h"
#include "spool/models/tokenizers/gpt2_pieces.h"
#include "spool/models/tokenizers/utf8.h"

namespace spool {
namespace {

constexpr int max_steps = 8;           // of one part
constexpr size_t max_prepended = 100;  // bytes
constexpr size_t max_growth = 4;       // how many times as long as the replaced string

// Appends the parts of a Sequence, also of Sequences in it, or the single part.  `key` is the name
// of its list.
void flatten(const JsonField& field, const char* key, std::vector<JsonField>& all) {
  const JsonField type = field.member("type");
  if (type.string() == "Sequence") {
    for (const JsonField& item : field.member(key).items()) flatten(item, key, all);
  } else {
    field.expect(std::ssize(all) < max_steps, "there are more than ", max_steps, " steps");
    all.push_back(field);
  }
}

std::vector<JsonField> steps_of(const JsonField& whole, const char* part, const char* key) {
  std::vector<JsonField> all;
  if (const auto field = whole.present(part)) flatten(*field, key, all);
  return all;
}

constexpr std::pair<const char*, NormalizerStep::Kind> unicode_forms[] = {
    {"NFC", NormalizerStep::Kind::nfc},
    {"NFD", NormalizerStep::Kind::nfd},
    {"NFKC", NormalizerStep::Kind::nfkc},
    {"NFKD", NormalizerStep::Kind::nfkd},
    {"Lowercase", NormalizerStep::Kind::lowercase}};

[[noreturn]] void refuse_type(const JsonField& step, const char* supported) {
  const JsonField type = step.member("type");
  type.refuse(excerpt(type.value()), " is not supported; ", supported, " are");
}

void expect_false(const JsonField& object, const char* key, bool absent) {
  if (!object.flag(key, absent)) return;
  const auto field = object.find(key);
  (field ? *field : object).refuse(key, " is true, which is not supported");
}

// The string that a step replaces, {"String": "x"}, and its replacement.
std::pair<std::string, std::string> replacement(const JsonField& step) {
  const JsonField from = step.member("pattern").member("String"), to = step.member("content");
  const size_t size = from.string().size();
  from.expect(size > 0, "there is nothing to replace");
  to.expect(to.string().size() <= max_growth * size, "it has more than ", max_growth,
            " times the bytes of what it replaces");
  return {from.string(), to.string()};
}

void add_pieces(const JsonField& field, std::string_view expression, PreTokenizer& pieces) {
  try {
    pieces.add(expression);
  } catch (const Error& e) {
    field.refuse(e.what());
  }
}

void add_split(const JsonField& step, PreTokenizer& pieces) {
  const JsonField behavior = step.member("behavior");
  behavior.expect(behavior.string() == "Isolated", excerpt(behavior.value()),
                  " is not supported; \"Isolated\" is");
  expect_false(step, "invert", /*absent=*/false);
  const JsonField expression = step.member("pattern").member("Regex");
  add_pieces(expression, expression.string(), pieces);
}

void add_byte_level(const JsonField& step, TokenizerParts& parts) {
  expect_false(step, "add_prefix_space", /*absent=*/true);
  parts.encoding.bytewise = true;
  if (step.flag("use_regex", /*absent=*/true)) {
    add_pieces(step, Gpt2Pieces::expression, parts.pieces);
  }
}

// Reads the Metaspace step of a pre-tokenizer or a decoder.
Metaspace read_metaspace(const JsonField& step) {
  using Prepend = Metaspace::Prepend;
  Metaspace metaspace;
  const JsonField blank = step.member("replacement");
  metaspace.blank = blank.string();
  const size_t size = first_character_size(metaspace.blank);
  blank.expect(size > 0 && size == metaspace.blank.size(), excerpt(blank.value()),
               " is not one character");
  if (const auto scheme = step.present("prepend_scheme")) {
    const std::string name = scheme->string();
    scheme->expect(name == "always" || name == "first" || name == "never", excerpt(name),
                   " is none of \"always\", \"first\" and \"never\"");
    metaspace.prepend = name == "always"  ? Prepend::always
                        : name == "first" ? Prepend::first
                                          : Prepend::never;
  }
  if (!step.flag("add_prefix_space", /*absent=*/true)) {
    step.member("add_prefix_space")
        .expect(metaspace.prepend == Prepend::never, "it does not go with the prepend_scheme");
  }
  metaspace.splits = step.flag("split", /*absent=*/true);
  return metaspace;
}

void add_strip(const JsonField& step, TokenizerParts& parts) {
  const JsonField content = step.member("content"), stop = step.member("stop");
  parts.stripped = content.string();
  content.expect(!parts.stripped.empty(), "there is nothing to strip");
  parts.max_stripped = step.member("start").integer<int64_t>(0, 1000);
  stop.expect(stop.integer<int64_t>(0, 1000) == 0, "stripping the end is not supported");
}

// The ids that TemplateProcessing defines for a name.
std::vector<int32_t> template_ids(const JsonField& step, const JsonField& name,
                                  const TokenizerParts& parts) {
  const std::string key = name.string();
  const auto special = step.member("special_tokens").find(key.c_str());
  name.expect(special.has_value(), excerpt(key), " is none of the special_tokens beside it");
  std::vector<int32_t> ids;
  for (const JsonField& id : special->member("ids").items()) {
    ids.push_back(id.integer<int32_t>(0, static_cast<int32_t>(parts.texts.size()) - 1));
  }
  return ids;
}

void read_template(const JsonField& step, TokenizerParts& parts) {
  bool is_text_over = false;
  for (const JsonField& item : step.member("single").items()) {
    if (const auto special = item.find("SpecialToken")) {
      auto& all = is_text_over ? parts.after_text : parts.begin_of_text;
      const auto ids = template_ids(step, special->member("id"), parts);
      all.insert(all.end(), ids.begin(), ids.end());
    } else {
      item.member("Sequence");
      item.expect(!is_text_over, "a text that comes twice is not supported");
      is_text_over = true;
    }
  }
}

}  // namespace

std::string TokenSpelling::decode(const std::string& spelling) const {
  if (bytewise) return ByteAlphabet::instance().read(spelling).value_or(spelling);
  if (const int byte = has_bytes ? byte_spelt(spelling) : -1; byte >= 0) {
    return {static_cast<char>(byte)};
  }
  std::string text = spelling;
  for (const auto& [from, to] : replaced) {
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

std::string TokenSpelling::decode_at_begin(std::string spelling) const {
  if (dropped_at_begin.empty()) return decode(spelling);
  for (size_t at = 0; (at = spelling.find(dropped_at_begin, at)) != spelling.npos;) {
    spelling.erase(at, dropped_at_begin.size());
  }
  return decode(spelling);
}

void read_normalizer(const JsonField& whole, TokenizerParts& parts) {
  using Kind = NormalizerStep::Kind;
  for (const JsonField& step : steps_of(whole, "normalizer", "normalizers")) {
    const std::string type = step.member("type").string();
    const auto form = std::ranges::find(unicode_forms, type, &std::pair<const char*, Kind>::first);
    if (form != std::end(unicode_forms)) {
      parts.normalizer.add({.kind = form->second});
    } else if (type == "Prepend") {
      const JsonField prepended = step.member("prepend");
      prepended.expect(prepended.string().size() <= max_prepended, "it has more than ",
                       max_prepended, " bytes");
      parts.normalizer.add({.kind = Kind::prepend, .to = prepended.string()});
    } else if (type == "Replace") {
      auto [from, to] = replacement(step);
      parts.normalizer.add({.kind = Kind::replace, .from = std::move(from), .to = std::move(to)});
    } else {
      refuse_type(step, "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace and a Sequence of them");
    }
  }
}

void read_pre_tokenizer(const JsonField& whole, TokenizerParts& parts) {
  for (const JsonField& step : steps_of(whole, "pre_tokenizer", "pretokenizers")) {
    const std::string type = step.member("type").string();
    step.expect(!parts.encoding.bytewise, "a step after ByteLevel is not supported");
    const bool is_first = parts.pieces.empty() && !parts.metaspace;
    step.expect(is_first || (type != "Metaspace" && !parts.metaspace),
                "Metaspace beside another step is not supported");
    if (type == "ByteLevel") {
      add_byte_level(step, parts);
    } else if (type == "Digits") {
      const JsonField individual = step.member("individual_digits");
      individual.expect(individual.boolean(), "digits together are not supported");
      add_pieces(step, R"(\p{N})", parts.pieces);
    } else if (type == "Split") {
      add_split(step, parts.pieces);
    } else if (type == "Metaspace") {
      parts.metaspace = read_metaspace(step);
    } else {
      refuse_type(step, "ByteLevel, Digits, Metaspace, Split and a Sequence of them");
    }
  }
}

TokenSpelling read_decoder(const JsonField& whole, TokenizerParts& parts) {
  const JsonField decoder = whole.member("decoder");
  TokenSpelling spelling{.bytewise = parts.encoding.bytewise};
  bool is_fused = false, has_metaspace = false;
  for (const JsonField& step : steps_of(whole, "decoder", "decoders")) {
    const std::string type = step.member("type").string();
    step.expect((type == "ByteLevel") == spelling.bytewise,
                "it does not go with the pre_tokenizer; both are ByteLevel, or neither is");
    step.expect(is_fused == (type == "Strip") || type == "ByteLevel",
                "it is not supported at this place; Replace, Metaspace and ByteFallback are before "
                "Fuse, and Strip is after it");
    step.expect(!spelling.has_bytes || type != "Metaspace",
                "Metaspace after ByteFallback is not supported");
    if (type == "Replace") {
      spelling.replaced.push_back(replacement(step));
    } else if (type == "Metaspace") {
      const Metaspace metaspace = read_metaspace(step);
      step.expect(spelling.replaced.empty(), "Metaspace after Replace is not supported");
      spelling.replaced.emplace_back(metaspace.blank, " ");
      if (metaspace.prepend != Metaspace::Prepend::never) {
        spelling.dropped_at_begin = metaspace.blank;
      }
      has_metaspace = true;
    } else if (type == "ByteFallback") {
      spelling.has_bytes = true;
    } else if (type == "Fuse") {
      is_fused = true;
    } else if (type == "Strip") {
      add_strip(step, parts);
    } else if (type != "ByteLevel") {
      refuse_type(step,
                  "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and a Sequence of "
                  "them");
    }
  }
  decoder.expect(spelling.bytewise || is_fused || has_metaspace,
                 "a decoder with neither ByteLevel nor Fuse, which puts "
                 "blanks between tokens, is not supported");
  return spelling;
}

void read_post_processor(const JsonField& whole, TokenizerParts& parts) {
  for (const JsonField& step : steps_of(whole, "post_processor", "processors")) {
    const std::string type = step.member("type").string();
    if (type == "TemplateProcessing") {
      read_template(step, parts);
    } else if (type != "ByteLevel") {
      refuse_type(step, "ByteLevel, TemplateProcessing and a Sequence of them");
    }
  }
}

int byte_spelt(std::string_view spelling) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  const size_t high = digits.find(spelling[3]), low = digits.find(spelling[4]);
  if (high == digits.npos || low == digits.npos) return -1;
  return static_cast<int>(16 * high + low);
}

}  // namespace spool
