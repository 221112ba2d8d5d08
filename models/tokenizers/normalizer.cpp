#include "spool/models/tokenizers/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

using NormalizerKind = NormalizerStep::Kind;

// Whether the step leaves the text unchanged, judged by its bytes: NFC changes nothing below
// U+0300, the other forms nothing in ASCII, and lowercasing nothing in ASCII but A to Z.
bool keeps_as_it_is(NormalizerKind kind, std::string_view text) {
  if (kind == NormalizerKind::nfc) {
    return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
  }
  return std::ranges::all_of(text, [&](char c) {
    const bool is_capital = 'A' <= c && c <= 'Z';
    return static_cast<signed char>(c) >= 0 && !(is_capital && kind == NormalizerKind::lowercase);
  });
}

int options_of(NormalizerKind kind) {
  switch (kind) {
    case NormalizerKind::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalizerKind::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalizerKind::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE;
    default:
      return UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE;
  }
}

void append_normal_form(NormalizerKind kind, std::string_view valid, std::string& out) {
  utf8proc_uint8_t* form = nullptr;
  const auto size = ::utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                   static_cast<utf8proc_ssize_t>(valid.size()), &form,
                                   static_cast<utf8proc_option_t>(options_of(kind)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(form, &std::free);
  check(size >= 0,
        "text could not be brought into a normal form of Unicode: ", ::utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(form), static_cast<size_t>(size));
}

// Lowercases each character by itself; only U+0130 becomes two.
void append_lowercase(std::string_view valid, std::string& out) {
  constexpr char32_t dotted = 0x130;
  while (!valid.empty()) {
    const size_t size = first_character_size(valid);
    const char32_t c = code_point(valid.substr(0, size));
    if (c == dotted) {
      out += "i\xcc\x87";
    } else {
      std::array<utf8proc_uint8_t, 4> bytes{};
      const auto small = ::utf8proc_tolower(static_cast<utf8proc_int32_t>(c));
      const auto count = ::utf8proc_encode_char(small, bytes.data());
      out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
    }
    valid.remove_prefix(size);
  }
}

std::string replace_all(std::string_view text, const std::string& from, const std::string& to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(from, at), text.size());
    out += text.substr(at, found - at);
    if (found < text.size()) out += to;
    at = found + from.size();
  }
  return out;
}

}  // namespace

std::string unicode_form(NormalizerStep::Kind kind, std::string_view text) {
  constexpr size_t at_once = size_t{1} << 16;  // utf8proc takes 32-bit characters
  std::string out;
  while (!text.empty()) {
    size_t size = valid_utf8_size(text);
    if (size == 0) {
      out += text[0];
      text.remove_prefix(1);
      continue;
    }
    // A space is never composed with what precedes it.
    const size_t blank = size > at_once ? text.substr(0, size).find(' ', at_once) : text.npos;
    if (blank != text.npos) size = blank;
    const std::string_view some = text.substr(0, size);
    if (kind == NormalizerKind::lowercase) {
      append_lowercase(some, out);
    } else {
      append_normal_form(kind, some, out);
    }
    text.remove_prefix(size);
  }
  return out;
}

std::string_view Normalizer::normalize(std::string_view text, bool continues,
                                       std::string& buffer) const {
  if (text.empty()) return text;
  std::string_view now = text;
  const auto become = [&](std::string next) {
    buffer = std::move(next);
    now = buffer;
  };
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case NormalizerKind::prepend:
        if (!continues) become(step.to + std::string(now));
        break;
      case NormalizerKind::replace:
        become(replace_all(now, step.from, step.to));
        break;
      default:
        if (!keeps_as_it_is(step.kind, now)) become(unicode_form(step.kind, now));
    }
  }
  return now;
}

size_t Normalizer::longest_replaced() const {
  size_t longest = 0;
  for (const NormalizerStep& step : steps_) longest = std::max(longest, step.from.size());
  return longest;
}

// At each step, checks that the text near the cut is normalised as it would be alone.
bool Normalizer::keeps_apart(std::string_view before, std::string_view after) const {
  const size_t near = 64 + longest_replaced();  // bytes
  std::string left(before.substr(before.size() - std::min(before.size(), near)));
  std::string right(after.substr(0, near));
  const auto keeps = [&](const NormalizerStep& step) {
    if (step.kind == NormalizerKind::prepend) return true;
    if (step.kind == NormalizerKind::replace) {
      if (spans(step.from, left, right)) return false;
      left = replace_all(left, step.from, step.to);
      right = replace_all(right, step.from, step.to);
      return true;
    }
    const std::string whole = unicode_form(step.kind, left + right);
    left = unicode_form(step.kind, left);
    right = unicode_form(step.kind, right);
    return left + right == whole;
  };
  return std::ranges::all_of(steps_, keeps);
}

bool Normalizer::prepends() const {
  return std::ranges::any_of(
      steps_, [](const NormalizerStep& step) { return step.kind == NormalizerKind::prepend; });
}

bool spans(std::string_view string, std::string_view before, std::string_view after) {
  for (size_t size = 1; size < string.size() && size <= before.size(); ++size) {
    const std::string_view rest = string.substr(size);
    const size_t known = std::min(rest.size(), after.size());
    if (before.ends_with(string.substr(0, size)) && rest.substr(0, known) == after.substr(0, known))
      return true;
  }
  return false;
}

}  // namespace spool
