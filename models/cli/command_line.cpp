#include "spool/models/cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// What is wrong with a text that should be a whole number; empty if nothing is.
template <class T>
std::string fault_of_number(const std::string& text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) {
    return sentence("'", text, "' is too large; the most is ", std::numeric_limits<T>::max());
  }
  if (error == std::errc() && after == end) return {};
  constexpr const char* what =
      std::is_unsigned_v<T> ? "a whole number from 0 on" : "a whole number";
  return sentence("'", text, "' is not ", what, "; write it in decimal digits, as in 1000");
}

// Drops leading zeros: CLI11 would read 010 as eight.
std::string without_zeros(const std::string& number) {
  const bool negative = number.starts_with('-');
  const size_t digit = number.find_first_not_of('0', negative ? 1 : 0);
  return (negative ? "-" : "") + (digit == std::string::npos ? "0" : number.substr(digit));
}

// What is wrong with a text that should be a real number.  Numbers that are too large for the
// setting, and infinity, are left to the setting's own check.
std::string fault_of_real(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) {
    return sentence("'", text, "' is too large or too small for a number in 64 bits");
  }
  if (error == std::errc() && after == end) return {};
  return sentence("'", text, "' is not a number; write it as in 0.001 or 1e-3");
}

CLI::Validator real_number() {
  return {[](const std::string& text) { return fault_of_real(text); }, ""};
}

const std::string empty_value = "the value is empty; give one, or leave it out";

CLI::Validator no_empty_text() {
  return {[](const std::string& text) { return text.empty() ? empty_value : std::string(); }, ""};
}

template <class T>
CLI::Validator whole_number() {
  return {[](std::string& text) {
            std::string fault = fault_of_number<T>(text);
            if (fault.empty()) text = without_zeros(text);
            return fault;
          },
          ""};
}

// Rewrites --resume DIR and --resume=DIR.
void name_resumed_run(std::vector<std::string>& words) {
  constexpr std::string_view flag = "--resume";
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--resume=") && words[i].size() > flag.size() + 1) {
      const std::string run = words[i].substr(flag.size() + 1);
      words[i] = flag;
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, run);
    }
    const bool is_named =
        words[i] == flag && i + 1 < words.size() && !words[i + 1].starts_with('-');
    if (is_named) words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "--out");
  }
}

// The minimum number of letters to insert, remove or replace (Levenshtein, 1966).
size_t edits(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> command_words(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const std::set<std::string_view> of_paths{"train", "eval", "tokenize", "plot"};
  if (words.empty() || !of_paths.contains(words.front())) return words;
  for (std::string& word : words) {
    const size_t value = word.starts_with("--") ? word.find('=') + 1 : 0;  // --data=[a,b]
    if (word.ends_with(']') && word[value] == '[') word.insert(value, "./");
  }
  if (words.front() == "train") name_resumed_run(words);
  return words;
}

void check_values(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() == 0) continue;
    const std::string type = option->get_type_name();
    // A transformation runs before the option's own checks.
    if (type.starts_with("UINT")) option->transform(whole_number<uint64_t>());
    if (type.starts_with("INT")) option->transform(whole_number<int64_t>());
    if (type.starts_with("FLOAT")) option->transform(real_number());
    option->transform(no_empty_text());
  }
}

std::string fault_of_words(const CLI::App& app, const std::vector<std::string>& words) {
  const auto named = app.get_subcommands(
      [&](const CLI::App* command) { return !words.empty() && command->get_name() == words[0]; });
  if (named.empty()) return {};
  const CLI::App* const command = named.front();
  for (const std::string& word : words) {
    if (word == "--") break;  // only names follow
    const size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) continue;
    const std::string flag = word.substr(0, equals), value = word.substr(equals + 1);
    const CLI::Option* const option = command->get_option_no_throw(flag);
    if (!option) continue;
    const bool takes_none = option->get_items_expected_max() == 0;
    if (value.empty()) return sentence(flag, ": ", empty_value);
    if (takes_none) return sentence(flag, " takes no value, and '", value, "' was given");
  }
  return {};
}

CLI::Validator validator(const TextCheck& check) { return {check.fault, check.words}; }

std::vector<std::string> repeated_flags(const CLI::App& command) {
  std::vector<std::string> all;
  for (const CLI::Option* option : command.get_options()) {
    const size_t count = option->results().size();
    const auto is_last = [&](const std::string& one) { return one == option->results().back(); };
    if (count < 2 || option->get_items_expected_max() != 1) continue;
    if (std::ranges::all_of(option->results(), is_last)) continue;
    all.push_back(sentence(option->get_name(), " is given ", count,
                           " times; the last one counts: ", option->results().back()));
  }
  return all;
}

std::string wrong_command(const CLI::App& app, const std::string& first_word) {
  if (first_word.empty() || first_word.starts_with('-')) return {};
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string nearest;
  size_t min = 3;  // a word with more than two edits is another word
  for (const CLI::App* command : commands) {
    const size_t count = edits(first_word, command->get_name());
    if (count == 0) return {};
    if (count < min) nearest = command->get_name();
    min = std::min(min, count);
  }
  return sentence("there is no command ", first_word,
                  nearest.empty() ? "" : sentence("; did you mean ", nearest, "?"));
}

}  // namespace spool
