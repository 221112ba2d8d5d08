#pragma once

// Byte-pair encodes a piece of text with the vocabulary of a tokenizer.json, whose tokens consist
// of bytes or of characters, with ids in any order.  A piece that is one token is looked up.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spool/models/tokenizers/merge_table.h"

namespace spool {

// The bytes of a short text in two words, which are equal only for equal texts.
struct ShortText {
  static constexpr size_t max_bytes = 16;  // enough for almost all pieces

  uint64_t begin = 0, end = 0;  // the first bytes and the last ones, which may overlap
  size_t size = 0;

  ShortText() = default;
  explicit ShortText(std::string_view text);
  bool operator==(const ShortText&) const = default;
  uint64_t hash() const;
};

// Maps texts to tokens; short ones by a hash table with open addressing.
class TokenTable {
 public:
  static constexpr int32_t none = -1;

  // Keeps the first token of a text.
  void insert(std::string_view text, int32_t token);
  int32_t operator[](std::string_view text) const;
  int32_t operator[](const ShortText& text) const { return slots_[place_of(text)].token; }

 private:
  struct Slot {
    uint64_t begin = 0, end = 0;  // as in a ShortText
    uint32_t size = 0;
    int32_t token = none;
  };
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  size_t place_of(const ShortText&) const;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half of them taken
  size_t count_ = 0;
  size_t longest_ = 0;
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> long_;
};

struct PieceVocabulary {
  static constexpr int32_t none = PairTable::none;

  // Tokens of the encoding, by their bytes or characters, as in text before it is decoded.
  std::vector<std::pair<std::string, int32_t>> tokens;
  bool bytewise = false;            // pieces are sequences of bytes, not of characters
  std::array<int32_t, 256> bytes;   // the token of each byte, or none
  PairTable characters;             // {0, code point} -> token
  int32_t unknown = none;           // the token of unknown characters; none: they are left out
  bool fuse_unknown = false;        // several of them in a row are one token
  bool takes_whole_tokens = false;  // a piece that is a token becomes it, regardless of the merges
  MergeTable merges;

  PieceVocabulary() { bytes.fill(none); }
};

class PieceEncoder {
 public:
  // Working memory of one thread, with the tokens of recent short pieces.
  class Work {
   public:
    // Remembers pieces; the memory for it pays off for many of them.
    void remember() { recent_.resize(recent_pieces); }

   private:
    friend class PieceEncoder;
    static constexpr size_t recent_pieces = 2048;
    struct Recent {
      ShortText piece;
      uint32_t count = 0;
      std::array<int32_t, 3> tokens{};
    };

    std::vector<int32_t> parts_;
    std::vector<Recent> recent_;  // by the piece's hash
  };

  explicit PieceEncoder(PieceVocabulary);

  // Appends the tokens of a piece.
  void encode(std::string_view piece, Work&, std::vector<int32_t>& tokens) const;
  // Whether the character is a token.
  bool has_character(std::string_view character) const;

 private:
  void merge(std::string_view piece, Work&, std::vector<int32_t>& tokens) const;
  void append_parts(std::string_view piece, std::vector<int32_t>& parts) const;

  PieceVocabulary vocabulary_;
  bool has_all_bytes_ = false;  // of a bytewise vocabulary
  TokenTable whole_;            // pieces that become one token
};

}  // namespace spool
