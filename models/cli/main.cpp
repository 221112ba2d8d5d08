// The program `spool`.  An error is one message on standard error.  Exit codes: 0 success, 1 error,
// 2 wrong command line, 130 interrupted, 141 nobody reads what it writes.

#include "spool/models/cli/commands.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>

#include "spool/kernels/libraries.h"
#include "spool/models/cli/command_line.h"
#include "spool/models/cli/ranks/refusals.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/terminal/progress_bar.h"
#include "spool/models/cli/terminal/style.h"
#include "spool/models/cli/terminal/text.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/runtime/check.h"
#include "spool/runtime/cpu/processor.h"
#include "spool/runtime/cpu/tile_unit.h"
#include "spool/runtime/cuda/nccl.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/log.h"
#include "spool/runtime/ranks/launcher.h"
#include "spool/runtime/ranks/mpi.h"
#include "spool/runtime/stream.h"
#include "spool/runtime/version.h"

namespace spool {

namespace {

void print_message(const std::string& text, Style style) {
  constexpr std::string_view name = "spool:";
  const std::string lines =
      wrapped(sentence(name, " ", one_line(text)), terminal_width(STDERR_FILENO));
  std::fprintf(stderr, "%s%s\n", styled(name, style, STDERR_FILENO).c_str(),
               lines.c_str() + name.size());
}

// The rank that a launcher made of this process, if one did, and where its words say that it meets.
struct Launch {
  std::optional<LaunchedRank> rank = {};
  std::string meet = {};
};
Launch launch;

int print_error(const std::string& sentence, int code) {
  print_message(sentence, Style::error);
  return code;
}

// Of a command that does not begin.
int refuse(const std::string& why, int code) {
  if (!launch.rank) return print_error(why, code);
  if (!is_to_say(*launch.rank, launch.meet, why)) return code;
  return print_error(words_of_rank(launch.rank->rank, why), code);
}

// Makes messages printable, as they may contain a path or a word from the user.
class WarningSink : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    const bool is_error = message.level >= spdlog::level::err;
    const bool is_first = !launch.rank || launch.rank->rank == 0;  // others would warn of the same
    if (!is_error && !is_first) return;
    print_message({message.payload.data(), message.payload.size()},
                  is_error ? Style::error : Style::warning);
  }
  void flush_() override { std::fflush(stderr); }
};

std::string words_of(const CLI::ParseError& e) {
  const std::string text = e.what();
  const size_t missing = text.find(": 1 required ");  // CLI11's "--lr: 1 required FLOAT missing"
  return missing == std::string::npos ? text : text.substr(0, missing) + " needs a value";
}

// Returns 0 if nothing is wrong with the words.
int refuse_words(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string fault = fault_of_words(app, words);
  return fault.empty() ? 0 : refuse(sentence(fault, "; see spool ", words[0], " --help"), 2);
}

int print_usage_error(const CLI::App& app, const CLI::ParseError& e,
                      const std::string& first_word) {
  if (e.get_exit_code() == 0) return app.exit(e);  // --help
  std::string text = wrong_command(app, first_word);
  const std::string separator = text.ends_with('?') ? " See " : "; see ";
  if (text.empty()) text = words_of(e);
  std::string help = "spool ";
  for (const CLI::App* command : app.get_subcommands()) help += command->get_name() + " ";
  return refuse(text + separator + help + "--help", 2);
}

// Writing the last of the output may fail, for example because a disk is full.
void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    fail_file("standard output", "written", errno);
}

// A file that is opened later must not get the descriptor of a standard stream.
void open_standard_files() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

// What computes products of bf16 on this processor.
const char* bf16_products_in_words() {
  switch (tile_unit()) {
    case TileUnit::present:
      return "tile unit";
    case TileUnit::emulated:
      return "tile unit, emulated (SPOOL_TILE_UNIT)";
    case TileUnit::absent:
      break;
  }
  return library_versions(DeviceType::cpu) == "none" ? "plain loops" : "oneDNN";
}

std::string what_this_is() {
  std::string text = sentence("spool ", version(), "\ncommit ", commit(), "\ncompiler ", build(),
                              "\ncpu: ", library_versions(DeviceType::cpu),
                              "\nbf16 products: ", bf16_products_in_words());
#if SPOOL_CUDA
  text += "\ncuda: " + library_versions(DeviceType::cuda);
#else
  text += "\ncuda: not in this build";
#endif
  return text + "\nmpi: " + mpi_in_words() + "\nnccl: " + nccl_in_words();
}

using Commands = std::vector<std::pair<CLI::App*, std::function<int()>>>;

// " (--batch, --seq)": the flags of the error's settings, except those that the command lacks or
// that the message names.
std::string flags_of(const Error& e, const Commands& commands) {
  std::string list;
  for (const auto& [command, run] : commands) {
    if (!command->parsed()) continue;
    for (const std::string& key : e.fields().settings) {
      const bool has_key = command->get_option_no_throw("--" + key);
      const std::string flag = has_key ? "--" + key : flag_of(key);
      const bool named = std::string_view(e.what()).find(flag) != std::string_view::npos;
      if (command->get_option_no_throw(flag) && !named) list += (list.empty() ? "" : ", ") + flag;
    }
  }
  return list.empty() ? "" : " (" + list + ")";
}

// Nothing where variables are no launcher's, which is for `spool train` to say.
std::optional<LaunchedRank> rank_if_launched() {
  try {
    return rank_of_launcher();
  } catch (const Error&) {
    return {};
  }
}

// What --meet says, among words that may be wrong.
std::string meet_among(int argc, char** argv) {
  constexpr std::string_view flag = "--meet";
  std::string meet;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag && i + 1 < argc) meet = argv[i + 1];
    if (word.starts_with(flag) && word.substr(flag.size()).starts_with('=')) {
      meet = word.substr(flag.size() + 1);
    }
  }
  return meet;
}

// Ranks that a launcher started train, evaluate, generate or measure; of another command each would
// do the same.
std::string refusal_under_launcher(const CLI::App& command) {
  if (!launch.rank) return {};
  const std::string& launcher = launch.rank->launcher;
  const std::string& name = command.get_name();
  const bool starts_own = name == "plan" && launcher == "spool";
  for (const char* shared : {"train", "eval", "generate", "calibrate"}) {
    if (name == shared) return {};
  }
  if (starts_own) return {};
  return sentence("spool ", command.get_name(), " runs in one process, and ", launcher, " started ",
                  launch.rank->size, "; start it without ", launcher);
}

int run_command(const Commands& commands) {
  try {
    int code = 0;
    for (const auto& [command, run] : commands) {
      if (!command->parsed()) continue;
      const std::string refusal = refusal_under_launcher(*command);
      code = refusal.empty() ? run() : refuse(refusal, 1);
    }
    flush_output();
    return code;
  } catch (const Interrupted&) {
    return stopped_by_a_signal;
  } catch (const Error& e) {
    return print_error(e.what() + flags_of(e, commands), 1);
  } catch (const std::bad_alloc&) {
    return print_error("the program itself is out of memory", 1);
  } catch (const std::filesystem::filesystem_error& e) {
    return print_error(sentence(e.path1().string(), ": ", e.code().message()), 1);
  } catch (const std::system_error& e) {  // of a thread
    return print_error("the system refuses what the program needs: " + e.code().message(), 1);
  } catch (const std::exception& e) {
    return print_error(sentence("a fault of the program itself: ", e.what()), 1);
  }
}

// Returns an exit code if there is no command to run.
std::optional<int> parse_words(CLI::App& app, int argc, char** argv) {
  try {
    std::vector<std::string> words = command_words(argc, argv);
    if (const int code = refuse_words(app, words)) return code;
    std::ranges::reverse(words);  // as CLI11 wants them
    app.parse(std::move(words));
    return {};
  } catch (const CLI::ParseError& e) {
    return print_usage_error(app, e, argc > 1 ? argv[1] : "");
  } catch (const Error& e) {  // of --version
    return print_error(e.what(), 1);
  }
}

int main(int argc, char** argv) {
  open_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // makes a file that grows too large an ordinary error
  set_logger(std::make_shared<spdlog::logger>("spool", std::make_shared<WarningSink>()));
  launch = {.rank = rank_if_launched(), .meet = meet_among(argc, argv)};
  if (launch.rank && launch.rank->rank > 0) hide_progress();

  CLI::App app("Spool trains transformers inside a byte budget.");
  app.name("spool");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.set_version_flag("--version", what_this_is, "Print the version, and what it was built with");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Commands commands;
  const auto add = [&](const char* name, const char* what,
                       std::function<int()> (*define)(CLI::App&)) {
    CLI::App* command = app.add_subcommand(name, what);
    commands.emplace_back(command, define(*command));
    check_values(*command);
  };
  add("train", "Train a model on text; the peak memory is foretold before the first step",
      add_train);
  add("plan", "Plan a training run within a memory budget, without its data or its device",
      add_plan);
  add("generate", "Generate text with a trained model", add_generate);
  add("eval", "Measure a model's loss on text, or its accuracy on multiple-choice questions",
      add_eval);
  add("tokenize", "Convert text to shards of tokens, or shards to text", add_tokenize);
  add("show-data",
      "Show examples of conversations as a model would see them, and what it would learn",
      add_show_data);
  add("calibrate", "Measure the kernels of a training step, from which its time is foretold",
      add_calibrate);
  add("shard", "Say how an op can be cut over a mesh of ranks, and what that costs", add_shard);
  add("convert", "Convert a model to the format of transformers or of llm.c", add_convert);
  add("plot", "Draw the losses and the speed of runs", add_plot);
  add("info", "Say what a run, checkpoint, model, plan, shard or other file is", add_info);
  if (const std::optional<int> code = parse_words(app, argc, argv)) return *code;
  const bool has_been_said = launch.rank && launch.rank->launcher == "spool";  // by what started it
  for (const CLI::App* command : app.get_subcommands()) {
    if (has_been_said) break;
    for (const std::string& words : repeated_flags(*command)) spool::logger().warn("{}", words);
  }
  return run_command(commands);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  try {
    spool::check_processor();
  } catch (const spool::Error& e) {
    return spool::print_error(e.what(), 1);
  }
  return spool::main(argc, argv);
}
