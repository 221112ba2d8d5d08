// Measures a generated tokenizer.json of the size of Llama 3's, 128000 tokens, 280000 merges: its
// opening, and how fast one thread encodes text with it, and with the same in Qwen2's style.

#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "spool/models/tokenizers/byte_alphabet.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t vocabulary_size = 128000, merge_count = 280000;

const char* const llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Words of made-up syllables, the first of them common.
class Words {
 public:
  explicit Words(size_t count) {
    constexpr const char* syllables[] = {"the", "an",  "re",  "in",   "on",  "st", "er",
                                         "lo",  "mi",  "ka",  "tion", "qu",  "es", "ul",
                                         "vy",  "pro", "con", "di",   "fer", "gh"};
    while (words_.size() < count) {
      std::string word;
      const size_t parts = 1 + words_.size() % 5;
      for (size_t i = 0; i < parts; ++i) word += syllables[random_() % std::size(syllables)];
      words_.push_back(std::move(word));
    }
  }

  std::string_view draw() {
    const double u = static_cast<double>(random_()) / 4294967296.0;
    return words_[static_cast<size_t>(u * u * u * static_cast<double>(words_.size()))];
  }
  size_t number(size_t end) { return random_() % end; }

 private:
  std::mt19937 random_{1};
  std::vector<std::string> words_;
};

std::string text_of(size_t bytes) {
  Words words(50000);
  std::string text;
  constexpr const char* between[] = {" ", " ", " ", " ", " ", " ", ", ", ". ", "\n", " 12", "\n\n"};
  while (text.size() < bytes) {
    text += words.draw();
    text += between[words.number(std::size(between))];
  }
  return text;
}

// Each token is the beginning of a word; what a merge appends to it is any other token.
json model_of() {
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  json vocabulary, merges = json::array();
  std::set<std::pair<std::string, std::string>> known;
  const auto add = [&](const std::string& token) {
    if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
  };
  for (const char byte : alphabet.order()) add(alphabet.spell({&byte, 1}));
  const auto merge = [&](const std::string& left, const std::string& right) {
    if (!known.emplace(left, right).second) return;
    add(left + right);
    merges.push_back({left, right});
  };
  Words words(200000);
  while (vocabulary.size() < vocabulary_size) {
    const std::string word =
        alphabet.spell(std::string(words.number(3) > 0 ? 1 : 0, ' ').append(words.draw()));
    size_t end = word.starts_with("\xc4\xa0") ? 2 : 1;
    for (; end < word.size() && vocabulary.size() < vocabulary_size; ++end) {
      merge(word.substr(0, end), word.substr(end, 1));
    }
    for (size_t i = 2; i + 1 < word.size() && vocabulary.size() < vocabulary_size; ++i) {
      merge(word.substr(i, 1), word.substr(i + 1, 1));
    }
  }
  std::vector<std::string> tokens;
  for (const auto& [token, id] : vocabulary.items()) tokens.push_back(token);
  while (merges.size() < merge_count) {  // other ways to tokens that there are
    const std::string& token = tokens[words.number(tokens.size())];
    const size_t cut = 1 + words.number(token.size());
    const std::string left = token.substr(0, cut);
    const std::string right = token.size() > cut ? token.substr(cut) : std::string();
    if (vocabulary.contains(left) && vocabulary.contains(right)) merge(left, right);
  }
  return {{"type", "BPE"}, {"ignore_merges", true}, {"vocab", vocabulary}, {"merges", merges}};
}

json tokenizer_of(bool ignore_merges, const json& model) {
  json split{{"type", "Split"}, {"pattern", {{"Regex", llama3}}}, {"behavior", "Isolated"}};
  json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json whole{{"added_tokens", json::array({{{"id", vocabulary_size},
                                            {"content", "<|end_of_text|>"},
                                            {"special", true},
                                            {"normalized", false}}})},
             {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
             {"decoder", {{"type", "ByteLevel"}}},
             {"model", model}};
  if (!ignore_merges) whole["normalizer"] = {{"type", "NFC"}};
  whole["model"]["ignore_merges"] = ignore_merges;
  return whole;
}

void open(benchmark::State& state, const fs::path& file) {
  for (auto _ : state) benchmark::DoNotOptimize(read_tokenizer_json(file));
}

void encode(benchmark::State& state, const fs::path& file, const std::string& text) {
  const auto tokenizer = read_tokenizer_json(file);
  std::vector<int32_t> tokens;
  for (auto _ : state) {
    tokens.clear();
    tokenizer->encode(text, tokens);
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
  state.counters["bytes_per_token"] =
      static_cast<double>(text.size()) / static_cast<double>(tokens.size());
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto folder = spool::fs::temp_directory_path();
  const auto model = spool::model_of();
  const auto text = spool::text_of(size_t{4} << 20);
  std::vector<spool::fs::path> files;
  for (const bool ignore_merges : {true, false}) {
    files.push_back(folder / (ignore_merges ? "spool_bench_a.json" : "spool_bench_b.json"));
    spool::write_text_file_atomically(files.back(),
                                      spool::tokenizer_of(ignore_merges, model).dump());
  }
  const auto add = [](const char* name, auto work) {
    benchmark::RegisterBenchmark(name, work)->Unit(benchmark::kMillisecond);
  };
  add("open/128k", [&](auto& s) { spool::open(s, files[0]); });
  add("open/128k_by_merges", [&](auto& s) { spool::open(s, files[1]); });
  add("encode/128k", [&](auto& s) { spool::encode(s, files[0], text); });
  add("encode/128k_by_merges", [&](auto& s) { spool::encode(s, files[1], text); });
  benchmark::RunSpecifiedBenchmarks();
  for (const auto& file : files) spool::fs::remove(file);
  for (const auto& file : files) spool::fs::remove(file);
}
