// A tokenizer.json with an error anywhere is refused with a message.

#include <functional>
#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/models/tokenizers/regex_pieces.h"
#include "tests/models/tokenizers/tokenizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;
using Change = std::function<void(json&)>;

// Small tokenizers with every field that the reader knows.
const char* const bytewise = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": true},
    {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
  "post_processor": {"type": "Sequence", "processors": [
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                              {"Sequence": {"id": "A", "type_id": 0}}],
     "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}}]},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": "a", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": true, "vocab": {"a": 0, "b": 1, "aa": 2, "aaa": 3},
            "merges": [["a", "a"], ["aa", "a"], ["a", "aa"]]}})";
const char* const of_characters = R"({"version": "1.0", "added_tokens": [],
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "_"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
  "pre_tokenizer": null, "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "?", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"?": 0, "_": 1, "a": 2, "_a": 3, "<0x0A>": 4}, "merges": ["_ a"]}})";

void read_and_use(const TemporaryDirectory& d, const json& j) {
  const auto t = read_tokenizer_json(d.file("tokenizer.json", j.dump()));
  const auto ids = encode(*t, "aaa b <s> \n\xff");
  (void)t->decode(ids);
  (void)t->boundary("aaa b aaa");
}

void refused(const char* good, std::string_view words, const Change& change) {
  const TemporaryDirectory d;
  json j = json::parse(good);
  change(j);
  expect_error(ErrorKind::file, {"tokenizer.json: ", words}, [&] { read_and_use(d, j); });
}

TEST(TokenizerJson, ReadsTheGoodOnes) {
  const TemporaryDirectory d;
  const auto a = read_tokenizer_json(d.file("a.json", bytewise));
  EXPECT_EQ(encode(*a, "aaab<s>c"), (std::vector<int32_t>{3, 1, 4, 0}));
  const auto b = read_tokenizer_json(d.file("b.json", of_characters));
  EXPECT_EQ(encode(*b, "a a\nxxa"), (std::vector<int32_t>{3, 3, 4, 0, 2}));
  EXPECT_EQ(b->decode(std::vector<int32_t>{3, 3, 4, 0, 2}), "a a\n?a");
}

TEST(TokenizerJson, RefusesWhatIsNotSupportedByItsType) {
  const auto type = [](const char* part, const char* name) {
    return [=](json& j) { j[part] = {{"type", name}}; };
  };
  refused(bytewise, "field normalizer.type: \"StripAccents\" is not supported; NFC",
          type("normalizer", "StripAccents"));
  refused(bytewise, "field pre_tokenizer.type: \"Whitespace\" is not supported; ByteLevel",
          type("pre_tokenizer", "Whitespace"));
  refused(bytewise, "field post_processor.type: \"BertProcessing\" is not",
          type("post_processor", "BertProcessing"));
  refused(of_characters, "field decoder.type: \"WordPiece\" is not", type("decoder", "WordPiece"));
  refused(bytewise, "field decoder: it does not go with", type("decoder", "Fuse"));
  refused(bytewise, "field model.type: \"Unigram\" is not supported; BPE",
          [](json& j) { j["model"]["type"] = "Unigram"; });
  refused(bytewise, "dropout", [](json& j) { j["model"]["dropout"] = 0.5; });
  refused(bytewise, "continuing_subword_prefix",
          [](json& j) { j["model"]["continuing_subword_prefix"] = "##"; });
  refused(bytewise, "end_of_word_suffix",
          [](json& j) { j["model"]["end_of_word_suffix"] = "</w>"; });
  json::json_pointer split("/pre_tokenizer/pretokenizers/1"),
      level("/pre_tokenizer/pretokenizers/2"), single("/post_processor/processors/1/single");
  refused(bytewise, "behavior", [=](json& j) { j[split]["behavior"] = "Removed"; });
  refused(bytewise, "invert", [=](json& j) { j[split]["invert"] = true; });
  refused(bytewise, "Regex", [=](json& j) { j[split]["pattern"] = {{"String", "a"}}; });
  refused(bytewise, "add_prefix_space", [=](json& j) { j[level]["add_prefix_space"] = true; });
  refused(bytewise, "individual_digits",
          [](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false; });
  refused(of_characters, "neither ByteLevel nor Fuse", [](json& j) { j["decoder"] = nullptr; });
}

TEST(TokenizerJson, RefusesAMalformedMetaspace) {
  const auto with = [](const char* part, const json& changes) {
    return [=](json& j) {
      j["normalizer"] = nullptr;
      j[part] = {{"type", "Metaspace"}, {"replacement", "_"}};
      if (!changes.empty()) j[part].update(changes);
    };
  };
  for (const char* part : {"pre_tokenizer", "decoder"}) {
    const TemporaryDirectory d;
    json good = json::parse(of_characters);
    with(part, json::object())(good);
    EXPECT_NO_THROW(read_and_use(d, good));
    refused(of_characters, "is not one character", with(part, {{"replacement", "__"}}));
    refused(of_characters, "is not one character", with(part, {{"replacement", ""}}));
    refused(of_characters, "\"last\" is none of", with(part, {{"prepend_scheme", "last"}}));
    refused(of_characters, "does not go with", with(part, {{"add_prefix_space", false}}));
  }
  refused(of_characters, "Metaspace beside another step", [](json& j) {
    const json metaspace{{"type", "Metaspace"}, {"replacement", "_"}};
    const json digits{{"type", "Digits"}, {"individual_digits", true}};
    j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {digits, metaspace}}};
  });
  refused(of_characters, "Metaspace after ByteFallback", [](json& j) {
    const json metaspace{{"type", "Metaspace"}, {"replacement", "_"}};
    j["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, metaspace}}};
  });
}

TEST(TokenizerJson, RefusesVocabulariesThatDoNotFit) {
  refused(bytewise, "vocab.aa: id 0 is also", [](json& j) { j["model"]["vocab"]["aa"] = 0; });
  refused(bytewise, "vocab.aa: -1 is not", [](json& j) { j["model"]["vocab"]["aa"] = -1; });
  refused(bytewise, "is not a whole number", [](json& j) { j["model"]["vocab"]["aa"] = 1 << 30; });
  refused(bytewise, "a token without a character", [](json& j) { j["model"]["vocab"][""] = 9; });
  refused(bytewise, "merges[3]: \"x\" is not in the vocabulary", [](json& j) {
    j["model"]["merges"].push_back({"x", "a"});
  });
  refused(bytewise, "merges[3]: \"ba\" is not in the vocabulary",
          [](json& j) { j["model"]["merges"].push_back("b a"); });
  refused(bytewise, "merges[3]: the same two",
          [](json& j) { j["model"]["merges"].push_back("a a"); });
  refused(bytewise, "merges[0]: a merge is of two tokens", [](json& j) {
    j["model"]["merges"][0] = {"a", "a", "a"};
  });
  refused(bytewise, "not two tokens with a blank", [](json& j) { j["model"]["merges"][0] = "a"; });
  refused(bytewise, "unk_token", [](json& j) { j["model"]["unk_token"] = "zz"; });
  refused(bytewise, "added_tokens[0].id: id 3", [](json& j) { j["added_tokens"][0]["id"] = 3; });
  refused(bytewise, "has 1 to 1000 bytes", [](json& j) { j["added_tokens"][0]["content"] = ""; });
  refused(bytewise, "has 1 to 1000 bytes, not 1001",
          [](json& j) { j["added_tokens"][0]["content"] = std::string(1001, 'x'); });
  refused(bytewise, "there twice",
          [](json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); });
  refused(bytewise, "none of the special_tokens",
          [](json& j) { j["post_processor"]["processors"][1]["special_tokens"] = json::object(); });
}

// Replaces every value of the JSON by values of every kind, or removes it.
TEST(TokenizerJson, RefusesAnyWrongFieldWithAMessage) {
  const json values[] = {nullptr,
                         true,
                         -1,
                         1e300,
                         "",
                         "x",
                         json::array(),
                         json::object(),
                         json::array({1, "a"}),
                         {{"type", 3}},
                         {{"type", "Sequence"}}};
  int errors = 0;
  for (const char* good : {bytewise, of_characters}) {
    const TemporaryDirectory d;
    const json whole = json::parse(good), flat = whole.flatten();
    std::set<std::string> places;
    for (const auto& [path, value] : flat.items()) {
      for (json::json_pointer p(path); !p.empty(); p.pop_back()) places.insert(p.to_string());
    }
    for (const std::string& place : places) {
      for (size_t i = 0; i <= std::size(values); ++i) {
        json changed = whole;
        const json::json_pointer p(place);
        if (i < std::size(values)) {
          changed[p] = values[i];
        } else if (changed[p.parent_pointer()].is_object()) {
          changed[p.parent_pointer()].erase(p.back());
        }
        try {
          read_and_use(d, changed);
        } catch (const Error& e) {
          ++errors;
          EXPECT_NE(std::string(e.what()).find("tokenizer.json: "), std::string::npos) << e.what();
        }
      }
    }
  }
  EXPECT_GT(errors, 400);
}

TEST(RegexPieces, RefuseWhatIsNotSupported) {
  const auto refuses = [](const char* expression, std::string_view words) {
    expect_error(ErrorKind::invalid, {words}, [&] { RegexPieces{expression}; });
  };
  refuses("(", "PCRE2 refuses");
  refuses("a*", "without a character");
  refuses("a|", "without a character");
  refuses("\\", "backslash");
  for (const char* e :
       {"\\w",        "\\bx",        "(?R)",    "(*ANY)x",    "\\1",     "[[:alpha:]]",
        "[a&&b]",     "[]a]",        "\\u12",   "(?<name>a)", "\\K",     "\\X",
        "\\Qa",       "\\pL",        "a{,2}",   "a{2}+",      "a{2,3}+", "a{2}?",
        "a{1, 2}",    "(?i)a",       "\\p{L&}", "\\h",        "\\R",     "\\Z",
        "\\xe3",      "\\x1",        "[\\s-a]", "[!-\\p{L}]", "(?i:ss)", "(?i:x\xc3\xa9)",
        "(?i:[a-z])", "(?i:\\p{Lu})"}) {
    refuses(e, "not supported");
  }
  refuses("\\p{Nonsense}", "PCRE2 refuses");
  refuses("[", "PCRE2 refuses");
}

TEST(RegexPieces, SpellWhiteSpaceOut) {
  const auto pieces_of = [](const char* expression, std::string_view text) {
    const RegexPieces pieces(expression);
    RegexPieces::Walk walk(pieces, text);
    std::vector<std::string> all;
    for (std::string_view p; !(p = walk.next()).empty();) all.emplace_back(p);
    return all;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(pieces_of("\\s+", "a\xc2\xa0 b"), (Texts{"a", "\xc2\xa0 ", "b"}));
  EXPECT_EQ(pieces_of("\\s", "\xe1\xa0\x8e"), (Texts{"\xe1\xa0\x8e"}));  // U+180E is none
  EXPECT_EQ(pieces_of("[^\\s]+",
                      "a\xe3\x80\x80"
                      "b"),
            (Texts{"a", "\xe3\x80\x80", "b"}));
  EXPECT_EQ(pieces_of("[\\Sx]+", "ab \xc2\x85"), (Texts{"ab", " \xc2\x85"}));
  EXPECT_EQ(pieces_of("\\d|\\u0061",
                      "x\xd9\xa1\xc2\xbd"
                      "a"),
            (Texts{"x", "\xd9\xa1", "\xc2\xbd", "a"}));
  EXPECT_EQ(pieces_of("(?i:'s)|.",
                      "'\xc5\xbf\xff\xfe"
                      "a"),
            (Texts{"'\xc5\xbf", "\xff\xfe", "a"}));
  EXPECT_EQ(pieces_of("(?<=a)b", "bab"), (Texts{"ba", "b"}));
  EXPECT_EQ(pieces_of("a{2,3}|\\p{^L}{2}|[\\d-]", "aaaa12b-"), (Texts{"aaa", "a", "12", "b", "-"}));
  // \p{...} excludes a mark of several scripts: U+3099, of Hiragana and Katakana.
  EXPECT_EQ(pieces_of("\\p{Hiragana}+", "\xe3\x81\x8b\xe3\x82\x99"),
            (Texts{"\xe3\x81\x8b", "\xe3\x82\x99"}));
}

TEST(RegexPieces, GiveUpAMatchThatDoesNotEnd) {
  const RegexPieces pieces("(?:(?:a+)+)+b");
  RegexPieces::Walk walk(pieces, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!b");
  expect_error(ErrorKind::invalid, {"regular expression", "match limit"}, [&] { walk.next(); });
}

}  // namespace
}  // namespace spool::testing
