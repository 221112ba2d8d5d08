#include "spool/models/cli/commands.h"

#include <algorithm>
#include <thread>

#include "spool/models/cli/command_line.h"
#include "spool/models/families/model_file.h"
#include "spool/runtime/stream.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

// More of them only wait for each other.
CLI::Validator threads_of_this_machine() {
  const int64_t max = 16 * std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  return {[max](std::string& text) {
            const long long threads = std::strtoll(text.c_str(), nullptr, 10);
            const bool fits = 0 <= threads && threads <= max;
            return fits ? std::string()
                        : sentence(text, " is no number of threads for this machine; give 1 to ",
                                   max,
                                   ", which is 16 for each core, or 0: one for each core that this "
                                   "process may use");
          },
          ""};
}

}  // namespace

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

CLI::Validator memory_amount_or_none() {
  const CLI::Validator amount = memory_amount();
  return {[amount](std::string& text) { return text == "0" ? std::string() : amount(text); },
          "BYTES"};
}

void add_tokenizer_flags(CLI::App& app, TokenizerChoice& choice) {
  app.add_option("--tokenizer", choice.name,
                 "Tokenizer: bytes, gpt2, or a tokenizer.json or a folder with one; by default the "
                 "model's own, "
                 "else gpt2 if --merges is given, else bytes");
  app.add_option("--merges", choice.merges,
                 "GPT-2's vocabulary: its merges.txt, or llm.c's gpt2_tokenizer.bin");
}

void add_data_format_flags(CLI::App& app, DataFormat& format, bool& separate) {
  const auto set = [&format](const std::string& name) { format = *parse<DataFormat>(name); };
  app.add_option_function<std::string>(
         "--data-format", set,
         "auto: a file is a shard of tokens or text by its first bytes, and anything else is "
         "refused; text: the bytes of any file as they are")
      ->check(one_of({name(DataFormat::automatic), name(DataFormat::text)}))
      ->default_str(name(DataFormat::automatic));
  app.add_flag("!--no-separate", separate,
               "Let texts of several files run into each other; by default the token that ends a "
               "text, if the tokenizer has one, is between them");
}

CLI::Option* add_model_flag(CLI::App& app, std::string& model) {
  return app.add_option("--model", model, "Model: " + std::string(model_forms));
}

void add_device_flag(CLI::App& app, std::string& device) {
  app.add_option(
      "--device", device,
      "Device: cpu, cuda, or cuda:N for GPU number N, from 0; by default the environment's "
      "SPOOL_DEVICE, else cuda if there is a GPU, else cpu");
}

Device device_of(const std::string& flag) {
  const Device device = flag.empty() ? default_device() : parse_device(flag);
  check_device(device);
  return device;
}

void add_threads_flag(CLI::App& app, int& threads) {
  app.add_option("--threads", threads,
                 "Number of CPU threads; 0: one for each core that this process may use")
      ->check(threads_of_this_machine())
      ->capture_default_str();
}

CLI::Option* add_dtype_flag(CLI::App& app, std::string& dtype, const std::string& what) {
  return app.add_option("--dtype", dtype, what)->check(one_of({"f32", "bf16"}));
}

}  // namespace spool
