#include "spool/models/cli/commands.h"

#include <cstdlib>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/families/model_file.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/stream.h"

namespace spool {

void add_tokenizer_flags(CLI::App& app, TokenizerChoice& choice) {
  add_setting(app, "tokenizer", choice.name);
  add_setting(app, "merges", choice.merges);
}

void add_data_format_flags(CLI::App& app, DataFormat& format, bool& separate) {
  const auto set = [&format](const std::string& name) { format = *parse<DataFormat>(name); };
  describe(app.add_option_function<std::string>("--data-format", set), run_setting("data-format"));
  describe(app.add_flag("!--no-separate", separate), run_setting("separate"));
}

CLI::Option* add_model_flag(CLI::App& app, std::string& model) {
  return app.add_option("--model", model, "Model: " + std::string(model_forms));
}

void add_adapter_flags(CLI::App& app, std::string& adapter, std::string& base) {
  app.add_option("--adapter", adapter,
                 "Folder of an adapter of the model, as PEFT stores it, which is merged into the "
                 "weights as they are loaded");
  app.add_option("--base", base,
                 "Where the model is that an adapter changes, if the model is an adapter's folder "
                 "and not where that says");
}

Device device_of(const std::string& flag) {
  const Device device = flag.empty() ? default_device() : parse_device(flag);
  check_device(device);
  return device;
}

bool chooses_gpus(const std::string& flag) {
  const char* const of_environment = std::getenv("SPOOL_DEVICE");
  const std::string named = !flag.empty() ? flag : of_environment ? of_environment : "";
  if (named.empty()) return gpu_count() > 0;
  const Device device = parse_device(named);
  check_setting(device.type != DeviceType::cuda || device.index == 0, {"ranks", "device"},
                "ranks have a GPU each, not ", named, " alone",
                flag.empty() ? ", which SPOOL_DEVICE names" : "",
                "; say --device cuda, and which GPUs there are in CUDA_VISIBLE_DEVICES");
  return device.type == DeviceType::cuda;
}

CLI::Option* add_dtype_flag(CLI::App& app, std::string& dtype, const std::string& what) {
  const TextCheck& check = run_setting("dtype").text_check;
  return app.add_option("--dtype", dtype, what)->check(validator(check));
}

CLI::Option* add_parameters_flag(CLI::App& app, std::string& parameters) {
  return app
      .add_option("--parameters", parameters,
                  "Place of the parameters: device; host, from where each block's are copied to "
                  "the device when it runs, of a text for each token; or an amount of memory, such "
                  "as 6GiB, of which as many blocks as fit stay on the device")
      ->capture_default_str();
}

}  // namespace spool
