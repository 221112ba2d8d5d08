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

// Whether all characters are below U+0300, which NFC leaves as they are, or no characters at all.
bool is_composed_already(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

void append_composed(std::string_view valid, std::string& out) {
  utf8proc_uint8_t* composed = nullptr;
  const auto size =
      ::utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                     static_cast<utf8proc_ssize_t>(valid.size()), &composed,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  check(size >= 0, "text could not be brought into the normal form NFC: ", ::utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(composed), static_cast<size_t>(size));
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

std::string compose(std::string_view text) {
  constexpr size_t at_once = size_t{1} << 16;  // utf8proc takes 32-bit characters
  std::string out;
  while (!text.empty()) {
    size_t size = valid_utf8_size(text);
    if (size == 0) {
      out += text[0];
      text.remove_prefix(1);
      continue;
    }
    // ASCII is never composed with what is before it.
    const size_t blank = size > at_once ? text.substr(0, size).find(' ', at_once) : text.npos;
    if (blank != text.npos) size = blank;
    append_composed(text.substr(0, size), out);
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
      case NormalizerStep::Kind::nfc:
        if (!is_composed_already(now)) become(compose(now));
        break;
      case NormalizerStep::Kind::prepend:
        if (!continues) become(step.to + std::string(now));
        break;
      case NormalizerStep::Kind::replace:
        become(replace_all(now, step.from, step.to));
        break;
    }
  }
  return now;
}

bool Normalizer::keeps_apart(std::string_view before, std::string_view after) const {
  const auto keeps = [&](const NormalizerStep& step) {
    if (step.kind == NormalizerStep::Kind::replace) return !spans(step.from, before, after);
    if (step.kind == NormalizerStep::Kind::prepend || after.starts_with(' ')) return true;
    constexpr size_t near = 32;  // bytes
    const std::string_view left = before.substr(before.size() - std::min(before.size(), near));
    const std::string_view right =
        after.substr(0, std::max<size_t>(first_character_size(after), 1));
    return compose(std::string(left).append(right)) == compose(left) + compose(right);
  };
  return std::ranges::all_of(steps_, keeps);
}

bool Normalizer::prepends() const {
  return std::ranges::any_of(steps_, [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::prepend;
  });
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
