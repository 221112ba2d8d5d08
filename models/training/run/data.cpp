#include "spool/models/training/run/data.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "spool/models/data/data_reader.h"
#include "spool/models/data/find_files.h"
#include "spool/runtime/hash.h"

namespace spool {
namespace {

constexpr int64_t hashed_block = 4096;  // tokens

// From one hashed block to the next.
int64_t stride_of(const TokenSource& tokens) {
  constexpr int64_t max_hashed = int64_t{1} << 27;
  return hashed_block * (1 + tokens.size() / max_hashed);
}

int64_t hashed_tokens(const TokenSource& tokens) {
  const int64_t stride = stride_of(tokens), last = tokens.size() % stride;
  return tokens.size() / stride * hashed_block + std::min(last, hashed_block);
}

uint64_t fingerprint_of(const Split& split, RunListener& listener) {
  const int64_t total = hashed_tokens(*split.training) + hashed_tokens(*split.validation);
  int64_t before = 0;
  const auto tell = [&](int64_t hashed) {
    listener.progress({.what = "reading the data",
                       .done = static_cast<size_t>(before + hashed),
                       .total = static_cast<size_t>(total),
                       .unit = "tokens"});
  };
  const uint64_t training = fingerprint(*split.training, tell);
  before = hashed_tokens(*split.training);
  const uint64_t validation = fingerprint(*split.validation, tell);
  return training * 31 + validation;
}

// Spool's own texts, the default, are no documents of a user's.
std::string describe_joined(const DataReader& reader, const RunOptions& options,
                            const std::vector<std::vector<std::filesystem::path>>& of_each_kind) {
  if (!reader.separate || options.data.empty()) return {};
  size_t max = 0;
  for (const auto& files : of_each_kind) {
    if (!are_shards(files, reader.format)) max = std::max(max, files.size());
  }
  return describe_joined_documents(max, reader.tokenizer, BeginOfText::written, reader.vocabulary);
}

// Windows of texts, or of tokens.
class TextData final : public RunData {
 public:
  TextData(const RunOptions&, const Tokenizer&, RunListener&);

  const RowSource& training() const override { return *training_; }
  std::unique_ptr<const RowSource> validation(int64_t limit) const override {
    return std::make_unique<ValidationRows>(split_.validation, seq_, limit);
  }
  std::string name() const override { return split_.training->name(); }
  std::string in_words() const override {
    return fmt::format("{} tokens to train on, {} to validate with, from {}",
                       split_.training->size(), split_.validation->size(), name());
  }
  std::vector<std::string> changed_files() const override;

 private:
  Split split_;
  int64_t seq_;
  std::unique_ptr<const TrainingRows> training_;
};

TextData::TextData(const RunOptions& options, const Tokenizer& tokenizer, RunListener& listener)
    : seq_(options.training.seq) {
  const DataReader reader{
      .tokenizer = tokenizer,
      .vocabulary = options.training.model.shape().vocabulary,
      .threads = options.threads,
      .format = options.data_format,
      .separate = options.separate,
      .progress = [&](size_t done, size_t total) {
        listener.progress({.what = "encoding", .done = done, .total = total, .unit = "bytes"});
      }};
  const auto training =
      options.data.empty() ? default_texts(options.default_texts) : find_files(options.data);
  const auto held_out = find_files(options.val_data);
  const Tokens all = reader.open(training);
  split_ = split_validation(all, held_out.empty() ? nullptr : reader.open(held_out));
  const std::string joined = describe_joined(reader, options, {training, held_out});
  if (!joined.empty()) listener.say(joined);
  fingerprint_ = fingerprint_of(split_, listener);
  const uint64_t order = options.data_seed.value_or(options.training.seed);
  training_ = std::make_unique<TrainingRows>(split_.training, seq_, order);
  validation_targets_ = targets_of(*validation(ValidationRows::all));
}

std::vector<std::string> TextData::changed_files() const {
  std::vector<std::string> changed = split_.training->changed_files();
  for (std::string& file : split_.validation->changed_files()) changed.push_back(std::move(file));
  return changed;
}

}  // namespace

std::unique_ptr<const RunData> open_run_data(const RunOptions& options, const Tokenizer& tokenizer,
                                             const std::filesystem::path& directory,
                                             RunListener& listener) {
  try {
    const bool has_examples = are_examples(find_files(options.data), options.data_format);
    check_settings_of_examples(options, has_examples);
    if (has_examples) return open_examples(options, tokenizer, directory, listener);
    return std::make_unique<TextData>(options, tokenizer, listener);
  } catch (const Error& e) {
    if (!options.resume || e.kind() != ErrorKind::file) throw;
    throw Error(ErrorKind::file, sentence(e.what(), "; if the data has moved, say where it is"),
                {.file = e.fields().file, .settings = {"data", "val-data"}});
  }
}

uint64_t fingerprint(const TokenSource& tokens,
                     const std::function<void(int64_t hashed)>& progress) {
  constexpr int64_t max_blocks = 64;  // to read at a time
  const int64_t stride = stride_of(tokens);
  const int64_t each = stride == hashed_block ? max_blocks * hashed_block : hashed_block;
  Fnv1a hash;
  hash.add(static_cast<uint64_t>(tokens.size()));
  std::vector<int32_t> some;
  int64_t hashed = 0;
  for (int64_t begin = 0; begin < tokens.size(); begin += std::max(stride, each)) {
    some.resize(static_cast<size_t>(std::min(each, tokens.size() - begin)));
    tokens.read(begin, some);
    for (const int32_t token : some) hash.add(static_cast<uint64_t>(token));
    hashed += std::ssize(some);
    if (progress) progress(hashed);
  }
  return hash.state();
}

}  // namespace spool
