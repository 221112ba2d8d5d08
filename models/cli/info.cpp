// Says what a file or directory is, if Spool reads or writes it: a run, a checkpoint, a model, a
// plan, a shard of tokens and others.  JSON files are recognised by a member that only their kind
// has, or by their name.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/tables/plan_facts.h"
#include "spool/models/cli/terminal/text.h"
#include "spool/models/data/questions.h"
#include "spool/models/data/token_files.h"
#include "spool/models/families/families.h"
#include "spool/models/families/model_file.h"
#include "spool/models/formats/llmc_header.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/formats/safetensors.h"
#include "spool/models/formats/tensor_file.h"
#include "spool/models/report/report_page.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/planner/sharding/strategies_json.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/file_kind.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

struct FileDescription {
  std::string what = {};                                          // "a checkpoint, of step 40"
  std::vector<std::pair<std::string, std::string>> details = {};  // a name, and its value
};

constexpr const char* known_kinds =
    "a run, a checkpoint, a model, an adapter, a safetensors file, a plan, a shard of tokens, a "
    "tokenizer, multiple-choice questions, a log, a report, or text";

std::string in_bytes(uint64_t size) {
  return fmt::format("{} ({} bytes)", format_bytes(size), size);
}

std::string bytes_of(const fs::path& file) { return in_bytes(File::open(file).size()); }

FileDescription of_size(std::string what, const fs::path& file) {
  return {.what = std::move(what), .details = {{"size", bytes_of(file)}}};
}

FileDescription of_count(std::string what, const char* of, std::string count,
                         const fs::path& file) {
  return {.what = std::move(what), .details = {{of, std::move(count)}, {"size", bytes_of(file)}}};
}

// Wraps words into lines of at most 56 characters, aligned below each other.
std::string in_lines(const std::vector<std::string>& words) {
  constexpr size_t width = 56;
  std::string text;
  size_t used = 0;
  for (const std::string& word : words) {
    const bool breaks = used > 0 && used + 2 + word.size() > width;
    if (!text.empty()) text += breaks ? ",\n" : ", ";
    used = breaks ? word.size() : used + 2 + word.size();
    text += word;
  }
  return text;
}

void describe_tensors(const TensorReader& file, FileDescription& d) {
  std::map<StoredType, uint64_t> elements;
  for (const StoredTensor& t : file.tensors()) {
    elements[t.spec.type] += static_cast<uint64_t>(t.spec.shape.numel());
  }
  std::vector<std::string> types;
  for (const auto& [type, n] : elements) types.push_back(fmt::format("{} {}", n, name(type)));
  d.details.emplace_back("tensors", std::to_string(file.tensors().size()));
  d.details.emplace_back("elements", in_lines(types));
  d.details.emplace_back("size", in_bytes(file.bytes()));
}

std::string tokenizer_beside(const fs::path& directory) {
  try {
    const TokenizerChoice choice = choose_tokenizer({}, directory);
    return choice.merges.empty() ? choice.name : choice.name + ", " + choice.merges.string();
  } catch (const Error&) {
    return "none beside it";
  }
}

void describe_shape(const ModelConfig& config, FileDescription& d) {
  const ModelShape c = config.shape();
  const bool grouped = c.heads.key != c.heads.query;
  const std::string keys = grouped ? fmt::format(" ({} of keys)", c.heads.key) : "";
  d.details.emplace_back(
      "model", fmt::format("{}, {} layers, {} heads{}, {} channels", config.family(), c.layers,
                           c.heads.query, keys, c.channels));
  d.details.emplace_back("context", std::to_string(c.context));
  d.details.emplace_back("vocabulary", std::to_string(c.vocabulary));
}

void describe_model(const fs::path& path, FileDescription& d) {
  if (const auto folder = adapter_of(path)) {
    const AdapterFile adapter(*folder);
    d.details.emplace_back("adapter", in_words(adapter.lora()) + ", for " + adapter.base());
    if (!path_exists(adapter.base())) return;
  }
  const ModelFile model(path);
  describe_shape(model.config(), d);
  const auto parameters = std::to_string(model.config().parameter_count());
  d.details.emplace_back("parameters", parameters + " of " + name(model.dtype()));
  d.details.emplace_back("weights", model.name());
  d.details.emplace_back("size", in_bytes(model.tensors().bytes()));
  d.details.emplace_back("tokenizer", tokenizer_beside(model.directory()));
}

FileDescription of_model(std::string what, const fs::path& path) {
  FileDescription d{.what = std::move(what)};
  describe_model(path, d);
  return d;
}

// "batch 8", "data [...]": without those that the model's lines say.
std::vector<std::string> settings_of(const JsonField& configuration) {
  const std::set<std::string> said{"layers",  "heads", "channels", "context", "vocab",
                                   "epsilon", "gelu",  "config",   "data",    "val-data"};
  std::vector<std::string> words;
  for (const JsonField& setting : configuration.members()) {
    const nlohmann::json& value = setting.value();
    if (said.contains(setting.key()) || value.dump() == R"("")") continue;
    words.push_back(setting.key() + " " +
                    (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return words;
}

std::string data_of(const JsonField& configuration) {
  std::vector<std::string> words;
  for (const char* key : {"data", "val-data"}) {
    const auto patterns = configuration.find(key);
    if (!patterns) continue;
    for (const JsonField& pattern : patterns->items()) words.push_back(pattern.string());
  }
  return words.empty() ? "Spool's own documents and sources" : in_lines(words);
}

std::string describe_checkpoint(const fs::path& directory, FileDescription& d) {
  const StoredRun run = read_run(directory);
  const JsonField all = read_json(directory / "run.json");
  const auto steps = run.configuration.member("steps").integer<int64_t>();
  describe_model(directory, d);
  d.details.emplace_back("data", data_of(run.configuration));
  d.details.emplace_back("settings", in_lines(settings_of(run.configuration)));
  if (const auto by = all.find("spool")) d.details.emplace_back("written by", by->string());
  return fmt::format("step {} of {}", run.step, steps);
}

FileDescription describe_run(const fs::path& directory, const fs::path& latest) {
  FileDescription d;
  const std::string step = describe_checkpoint(latest, d);
  std::vector<std::string> checkpoints;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && entry.is_directory()) checkpoints.push_back(std::move(name));
  }
  std::ranges::sort(checkpoints);
  d.details.emplace(d.details.begin(), "checkpoints", in_lines(checkpoints));
  d.what = "a run, at " + step;
  return d;
}

FileDescription describe_tokenizer(const fs::path& path, std::string what, const Tokenizer& t) {
  return of_count(std::move(what), "tokens", std::to_string(t.vocabulary()), path);
}

// A folder with a tokenizer only; nothing for others.
std::optional<FileDescription> describe_tokenizer_folder(const fs::path& path) {
  for (const fs::path name : {"tokenizer.json", "merges.txt", "gpt2_tokenizer.bin"}) {
    if (!path_exists(path / name)) continue;
    const auto tokenizer = open_tokenizer(choose_tokenizer({}, path));
    return describe_tokenizer(path / name, fmt::format("a tokenizer, {}", name.string()),
                              *tokenizer);
  }
  return {};
}

FileDescription describe_index(const fs::path& path) {
  const ShardedSafetensorsReader file(path);
  std::set<std::string> parts;
  for (const JsonField& part : read_json(path).member("weight_map").members()) {
    parts.insert(part.string());
  }
  std::string what = "the index of a model's weights in " + count_of(parts.size(), "file");
  if (path_exists(path.parent_path() / "config.json")) return of_model(std::move(what), path);
  FileDescription d{.what = std::move(what)};
  describe_tensors(file, d);
  return d;
}

FileDescription describe_directory(const fs::path& path) {
  if (const auto latest = latest_checkpoint(path)) return describe_run(path, *latest);
  FileDescription d;
  if (path_exists(path / "run.json")) {
    d.what = "a checkpoint of a run, of " + describe_checkpoint(path, d);
    return d;
  }
  const bool is_sharded = path_exists(path / weights_index_name);
  const bool has_weights = is_sharded || path_exists(path / weights_name);
  const bool has_config = path_exists(path / "config.json");
  if (!has_weights && has_config) {
    d.what = "the configuration of a model, without its weights";
    describe_shape(model_config(read_json(path / "config.json")), d);
    d.details.emplace_back("tokenizer", tokenizer_beside(path));
    return d;
  }
  if (!has_config && is_sharded) return describe_index(path / weights_index_name);
  if (!has_weights) {
    if (auto found = describe_tokenizer_folder(path)) return *std::move(found);
  }
  return of_model("a model", path);
}

FileDescription describe_shard(const fs::path& path, const char* type) {
  const Tokens tokens = open_shards(std::array{path}, /*vocabulary=*/INT64_MAX);
  return of_count("a shard of tokens", "tokens", fmt::format("{} of {}", tokens->size(), type),
                  path);
}

// Files that begin with one of llm.c's magic numbers; nothing for others.
std::optional<FileDescription> describe_llmc(const fs::path& path) {
  const File file = File::open(path);
  if (has_llmc_magic(file, llmc_tokens_magic)) return describe_shard(path, "uint16");
  if (has_llmc_magic(file, llmc_llama_tokens_magic)) return describe_shard(path, "uint32");
  if (has_llmc_magic(file, llmc_model_magic)) return of_model("a model of llm.c", path);
  if (has_llmc_magic(file, llmc_choices_magic)) {
    const LlmcHeader header(file, "multiple-choice questions");
    return of_count("multiple-choice questions", "questions", std::to_string(header[2]), path);
  }
  if (!has_llmc_magic(file, llmc_tokenizer_magic)) return {};
  const LlmcHeader header(file, "a tokenizer");
  return of_count("a tokenizer of llm.c", "tokens", std::to_string(header[2]), path);
}

FileDescription describe_safetensors(const fs::path& path) {
  if (path.filename() == "model.safetensors" && path_exists(path.parent_path() / "config.json")) {
    return of_model("a model", path);
  }
  const SafetensorsReader file(path);
  FileDescription d{.what = "a safetensors file"};
  describe_tensors(file, d);
  for (const auto& [key, value] : file.metadata()) d.details.emplace_back(key, value);
  return d;
}

// A log has an object per line, the first of which says what the file is.
FileDescription describe_log(const fs::path& path) {
  std::ifstream in(path);
  std::string line, loss;
  nlohmann::json step = 0;
  while (std::getline(in, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("loss")) continue;
    step = object.value("step", nlohmann::json());
    loss = object["loss"].dump();
  }
  FileDescription d = of_count("the log of a run", "last step", step.dump(), path);
  if (!loss.empty()) d.details.emplace(d.details.begin() + 1, "its loss", loss);
  return d;
}

// The page of a report; nothing for others.
std::optional<FileDescription> describe_page(const fs::path& path) {
  const nlohmann::json report = read_report_page(path);
  if (report.is_null()) return {};
  const auto format = report.value("format", nlohmann::json());
  return of_size(report.contains("run")           ? "the page of a run"
                 : format == "spool-plan-report"  ? "the page of a plan"
                 : format == "spool-plot"         ? "a page that draws runs"
                 : format == "spool-sweep-report" ? "the page of a sweep"
                                                  : "a page of a report",
                 path);
}

// A JSON file, by its first line or its members; nothing for others.
std::optional<FileDescription> describe_json(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto first = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (first.is_object() && first.value("format", nlohmann::json()) == "spool-run")
    return describe_log(path);
  constexpr uint64_t max_bytes = 32'000'000;
  if (!line.starts_with('{') || File::open(path).size() > max_bytes) return {};
  const std::string text = read_text_file(path, max_bytes);
  const auto whole = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  // Throws with what is wrong with it.
  if (whole.is_discarded() && path.extension() == ".json") (void)parse_json(text, path.string());
  if (!whole.is_object()) return {};
  if (whole.contains("spool_plan"))
    return FileDescription{.what = "a plan", .details = plan_facts(path)};
  if (whole.contains("weight_map")) return describe_index(path);
  if (whole.contains("model") && whole["model"].is_object() && whole["model"].contains("vocab")) {
    return describe_tokenizer(path, "a tokenizer", *read_tokenizer_json(path));
  }
  if (whole.contains("spool_kernels")) {
    const std::string kernels = std::to_string(whole.value("kernels", nlohmann::json()).size());
    return of_count("a table of measured kernels", "kernels", kernels, path);
  }
  const auto format = whole.value("format", nlohmann::json());
  if (format == "spool-plan-report") return of_size("the report of a plan", path);
  if (is_of_strategies(whole)) return of_size("the strategies of an op", path);
  const fs::path folder = fs::absolute(path).parent_path();
  if (path.filename() == "run.json" || path.filename() == "config.json") {
    FileDescription d = describe_directory(folder);
    d.what = fmt::format("a file of {}: {}", folder.string(), d.what);
    return d;
  }
  return {};
}

// Throws if the file does not exist, is damaged, or is of no kind that Spool knows.
FileDescription describe_file(const fs::path& path) {
  check_file(path_exists(path), path, "there is no such file or directory");
  if (path_is_directory(path)) return describe_directory(path);
  if (auto found = describe_llmc(path)) return *std::move(found);
  if (path.extension() == ".safetensors") return describe_safetensors(path);
  if (path.filename() == JsonTokenizer::kind) {
    return describe_tokenizer(path, "the tokenizer of a model", *read_tokenizer_json(path));
  }
  if (auto found = describe_page(path)) return *std::move(found);
  if (auto found = describe_json(path)) return *std::move(found);
  if (path.filename() == "merges.txt") {
    return describe_tokenizer(path, "the tokenizer of a GPT-2", *read_gpt2_tokenizer(path));
  }
  if (const auto kind = file_kind(File::open(path))) {
    check_file(/*ok=*/false, path, kind->what, "; ", kind->as_model);
  }
  check_file(begins_as_text(File::open(path)), path,
             "is none of what this command knows: ", known_kinds);
  return of_size("text; with --tokenizer bytes each byte is a token", path);
}

}  // namespace

std::function<int()> add_info(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  app.add_option("PATH", *path, "File or directory that Spool reads or writes")->required();
  return [path] {
    const auto [what, details] = describe_file(*path);
    fmt::print("{}: {}\n", one_line(*path), one_line(what));
    for (const auto& [name, value] : details) {
      std::string_view rest = value;
      for (std::string_view label = name; !rest.empty(); label = "") {
        const size_t end = std::min(rest.find('\n'), rest.size());
        fmt::print("  {:<16} {}\n", one_line(label), one_line(rest.substr(0, end)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return 0;
  };
}

}  // namespace spool
