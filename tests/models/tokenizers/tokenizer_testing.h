#pragma once

// A small GPT-2 tokenizer, and random texts.

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {

// A few merges, some of merged tokens; \xc4\xa0 spells a space.
inline const std::string small_merges =
    "#version: 0.2\nt h\nth e\n\xc4\xa0 the\na a\naa aa\n\xc4\xa0 a\n' s\n1 2\n\xc3\xa3 \xc4\xa3\n";

inline std::unique_ptr<Gpt2Tokenizer> small_tokenizer() {
  const TemporaryDirectory d;
  return read_gpt2_tokenizer(d.file("merges.txt", small_merges));
}

inline std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

// Words, spaces and characters of several bytes, some of them cut short.
inline std::string random_bytes(std::mt19937& random, size_t size) {
  constexpr std::string_view parts[] = {"a",
                                        "the",
                                        " ",
                                        " the",
                                        "\n",
                                        "'s",
                                        "'",
                                        "12",
                                        "\xe3\x80\x80",
                                        "\xc2\xa0",
                                        "\xe3",
                                        "\xc4\xa0",
                                        "\xf0\x9f\x99\x82",
                                        "!",
                                        "\xff",
                                        "\xe2\x80\x83",
                                        "\x80",
                                        "\xed\xa0\x80",
                                        "\t ",
                                        "aa"};
  std::string text;
  while (text.size() < size) text += parts[random() % std::size(parts)];
  return text;
}

}  // namespace spool::testing
