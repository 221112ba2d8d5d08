// The program `spool`.  Exit codes: 0 done, 1 something went wrong, 2 the command line is wrong,
// 130 interrupted.  What went wrong is one sentence on standard error.

#include "spool/models/cli/commands.h"

#include <fcntl.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>

#include "spool/models/families/model_file.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/log.h"
#include "spool/runtime/stream.h"
#include "spool/runtime/units.h"

namespace spool {

CLI::Validator memory_amount() {
  return {[](std::string& text) -> std::string {
            try {
              parse_bytes(text);
              return {};
            } catch (const Error& e) {
              return e.what();
            }
          },
          "BYTES"};
}

void add_tokenizer_flags(CLI::App& app, TokenizerChoice& choice) {
  app.add_option("--tokenizer", choice.name,
                 "bytes, or gpt2; by default what the model has, gpt2 with --merges, or bytes");
  app.add_option("--merges", choice.merges,
                 "GPT-2's vocabulary: its merges.txt, or llm.c's gpt2_tokenizer.bin");
}

CLI::Option* add_model_flag(CLI::App& app, std::string& model) {
  return app.add_option("--model", model, "Model: " + std::string(model_forms));
}

void add_device_flag(CLI::App& app, std::string& device) {
  app.add_option("--device", device,
                 "cpu, or cuda, or cuda:N, the N-th GPU; by default cuda where there is a GPU, "
                 "else cpu, or what SPOOL_DEVICE in the environment says");
}

Device device_of(const std::string& flag) {
  const Device device = flag.empty() ? default_device() : parse_device(flag);
  check_device(device);
  return device;
}

void add_threads_flag(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "Threads of the cpu; 0: one per core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

CLI::Option* add_dtype_flag(CLI::App& app, std::string& dtype, const std::string& what) {
  return app.add_option("--dtype", dtype, what)->check(CLI::IsMember({"f32", "bf16"}));
}

namespace {

int complain(const char* sentence, int code) {
  std::fprintf(stderr, "spool: %s\n", sentence);
  return code;
}

int usage(const CLI::App& app, const CLI::ParseError& e) {
  if (e.get_exit_code() == 0) return app.exit(e);  // --help
  const std::string text = std::string(e.what()) + "; see spool --help";
  return complain(text.c_str(), 2);
}

// What is still in the buffer may not fit on the disk, either.
void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    fail_file("standard output", "written", errno);
}

// A file that is opened later must not become one of the three that programs print to.
void open_standard_files() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

using Commands = std::vector<std::pair<CLI::App*, std::function<int()>>>;

// " (--batch, --seq)": the flags of the settings that the error is about, as far as the command has
// them and the sentence does not name them.
std::string flags_of(const Error& e, const Commands& commands) {
  std::string list;
  for (const auto& [command, run] : commands) {
    if (!command->parsed()) continue;
    for (const std::string& key : e.fields().settings) {
      const std::string flag = "--" + key;
      const bool named = std::string_view(e.what()).find(flag) != std::string_view::npos;
      if (command->get_option_no_throw(flag) && !named) list += (list.empty() ? "" : ", ") + flag;
    }
  }
  return list.empty() ? "" : " (" + list + ")";
}

int work(const Commands& commands) {
  try {
    int code = 0;
    for (const auto& [command, run] : commands) {
      if (command->parsed()) code = run();
    }
    flush_output();
    return code;
  } catch (const Interrupted&) {
    return stopped_by_a_signal;
  } catch (const Error& e) {
    return complain((e.what() + flags_of(e, commands)).c_str(), 1);
  } catch (const std::bad_alloc&) {
    return complain("the system has no more memory for the program itself", 1);
  } catch (const std::exception& e) {
    return complain(e.what(), 1);
  }
}

int main(int argc, char** argv) {
  open_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error like others
  auto logger =
      std::make_shared<spdlog::logger>("spool", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("spool: %v");
  set_logger(logger);

  CLI::App app("Spool trains transformers inside a byte budget.");
  app.name("spool");
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Commands commands;
  const auto add = [&](const char* name, const char* what,
                       std::function<int()> (*define)(CLI::App&)) {
    CLI::App* command = app.add_subcommand(name, what);
    commands.emplace_back(command, define(*command));
  };
  add("train", "Train a GPT-2 on text, and be told the peak before the first step", add_train);
  add("generate", "Write text with a trained model", add_generate);
  add("eval", "Measure a model's loss on text, or on multiple-choice questions", add_eval);
  add("tokenize", "Turn text into shards of tokens, and back", add_tokenize);
  add("convert", "Write a model in another form", add_convert);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return usage(app, e);
  }
  return work(commands);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) { return spool::main(argc, argv); }
