// The data of a run that reads examples.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

#include "spool/models/data/example_reader.h"
#include "spool/models/data/example_rows.h"
#include "spool/models/data/find_files.h"
#include "spool/models/inference/stop_tokens.h"
#include "spool/models/training/run/data.h"
#include "spool/runtime/hash.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<fs::path>;

// What is read of files, and which of it.
struct SomeExamples {
  std::shared_ptr<const Examples> all = {};
  Range some = {};
};

void add_to(Fnv1a& hash, const SomeExamples& examples) {
  hash.add(static_cast<uint64_t>(examples.some.size()));
  for (int64_t e = examples.some.begin; e < examples.some.end; ++e) {
    const auto tokens = examples.all->tokens(e);
    const auto learnt = examples.all->learnt(e);
    hash.add(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      hash.add(2 * static_cast<uint64_t>(tokens[i]) + learnt[i]);
    }
  }
}

std::string count_of(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

class ExampleData final : public RunData {
 public:
  ExampleData(const RunOptions&, const Tokenizer&, const fs::path& directory, RunListener&);

  const RowSource& training() const override { return *training_; }
  std::unique_ptr<const RowSource> validation(int64_t limit) const override {
    return std::make_unique<ValidationExamples>(validation_, limit);
  }
  bool is_packed() const override { return validation_->is_packed(); }
  bool has_examples() const override { return true; }
  std::optional<Prompt> prompt() const override { return prompt_; }
  std::string name() const override { return name_; }
  std::string in_words() const override;

 private:
  void split(const ExampleReader&, const Files& training, const Files& validation);
  std::optional<Prompt> find_prompt(const ExampleReader&) const;

  int64_t seq_;
  std::string name_;
  SomeExamples to_train_, to_validate_;
  std::vector<ExampleCounts> counts_;  // of the files to train on, and of those to validate with
  std::unique_ptr<const TrainingExamples> training_;
  std::shared_ptr<const RowList> validation_;
  std::optional<Prompt> prompt_;
};

ExampleData::ExampleData(const RunOptions& options, const Tokenizer& tokenizer,
                         const fs::path& directory, RunListener& listener)
    : seq_(options.training.seq) {
  const int64_t rows = options.training.model.shape().vocabulary;
  const ExampleReader reader{
      .tokenizer = tokenizer,
      .directory = directory,
      .chat_format = options.chat_format,
      .options = {.seq = seq_,
                  .learn_all = options.learn == Learn::all,
                  .system = options.system,
                  .stop = first_stop_token(directory, tokenizer, rows),
                  .rows = rows},
      .progress = [&](size_t done, size_t total) {
        listener.progress({.what = "encoding", .done = done, .total = total, .unit = "bytes"});
      }};
  const Files training = find_files(options.data), validation = find_files(options.val_data);
  split(reader, training, validation);
  if (reader.lacks_own_message()) {
    listener.say(
        "the model's template of chats begins with a message of its own, which Spool does not add; "
        "the setting system gives what the assistant should be told");
  }
  Fnv1a hash;
  add_to(hash, to_train_);
  add_to(hash, to_validate_);
  fingerprint_ = hash.state();
  const uint64_t order = options.data_seed.value_or(options.training.seed);
  training_ = std::make_unique<TrainingExamples>(
      RowList(to_train_.all, to_train_.some, seq_, options.pack), order);
  validation_ = std::make_shared<RowList>(to_validate_.all, to_validate_.some, seq_, options.pack);
  validation_targets_ = validation_->learnt();
  prompt_ = find_prompt(reader);
}

void ExampleData::split(const ExampleReader& reader, const Files& training,
                        const Files& validation) {
  const size_t others = training.size() - 1;
  name_ =
      others ? fmt::format("{} and {} more", training[0].string(), others) : training[0].string();
  const auto all = reader.read(training);
  counts_.push_back(all->counts());
  if (!validation.empty()) {
    check_file_setting(are_examples(validation), validation[0], {"val-data", "data"},
                       "is no file of examples in lines of JSON, as the data to train on is");
    const auto held_out = reader.read(validation);
    counts_.push_back(held_out->counts());
    to_train_ = {all, {0, all->size()}};
    to_validate_ = {held_out, {0, held_out->size()}};
    return;
  }
  const int64_t held_out = std::max<int64_t>(all->size() / 10, 1), rest = all->size() - held_out;
  check_file_setting(rest > 0, training[0], {"val-data"},
                     "has one example, and none is left to validate with; give more, or another "
                     "file to validate with");
  to_train_ = {all, {0, rest}};
  to_validate_ = {all, {rest, all->size()}};
}

std::optional<Prompt> ExampleData::find_prompt(const ExampleReader& reader) const {
  const auto tokens = to_validate_.all->prompt(to_validate_.some.begin);
  const size_t begin = reader.tokenizer.begin_of_text().size();
  if (tokens.size() <= begin) return {};  // of a text
  Prompt prompt{.tokens = {tokens.begin(), tokens.end()}, .words = reader.tokenizer.decode(tokens)};
  if (reader.options.stop) prompt.stop_tokens.push_back(*reader.options.stop);
  if (const auto chat = reader.chat()) {
    prompt.words = chat->last_message(prompt.words);
    prompt.stop_tokens.push_back(chat->end());
  }
  return prompt;
}

std::string ExampleData::in_words() const {
  ExampleCounts sum;
  for (const ExampleCounts& c : counts_) {
    sum.examples += c.examples;
    sum.cut += c.cut;
    sum.dropped += c.dropped;
  }
  const RowList& rows = training_->list();
  return fmt::format(
      "{}, {} cut at {} tokens, {} dropped with nothing to learn: {} to train on, {} to validate "
      "with, from {}\n{} of {} tokens, {:.1f} % full, with {} to learn; {} to validate with",
      count_of(sum.examples, "example"), sum.cut, seq_ + 1, sum.dropped, to_train_.some.size(),
      to_validate_.some.size(), name_, count_of(rows.size(), "row"), seq_, 100 * rows.fill(),
      count_of(rows.learnt(), "token"), count_of(validation_->size(), "row"));
}

}  // namespace

std::unique_ptr<const RunData> open_examples(const RunOptions& options, const Tokenizer& tokenizer,
                                             const fs::path& directory, RunListener& listener) {
  return std::make_unique<ExampleData>(options, tokenizer, directory, listener);
}

}  // namespace spool
