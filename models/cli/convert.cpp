#include <cstdio>
#include <memory>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/inference/convert_model.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/units.h"

namespace spool {

std::function<int()> add_convert(CLI::App& app) {
  struct ConvertArguments {
    std::string in, out, dtype, adapter, base, shard_bytes = "5GB";
  };
  const auto a = std::make_shared<ConvertArguments>();
  app.add_option("IN", a->in, "Model: " + std::string(model_forms))->required();
  app.add_option("OUT", a->out,
                 "File for llm.c, if the name ends in .bin; otherwise a directory for transformers")
      ->required()
      ->check(validator(file_of("a model")));
  add_adapter_flags(app, a->adapter, a->base);
  app.add_option("--shard-bytes", a->shard_bytes,
                 "Largest size of a file of weights; a model with more becomes several")
      ->check(validator(memory_amount()))
      ->capture_default_str();
  add_dtype_flag(app, a->dtype, "Type of the weights: f32 or bf16; by default the model's own");
  return [a] {
    const ModelFile model({a->in, a->adapter, a->base});
    const DType dtype = a->dtype.empty() ? model.dtype() : *parse<DType>(a->dtype);
    {
      CommandWork work("converting");
      convert_model(
          model, a->out,
          {.dtype = dtype, .shard_bytes = parse_bytes(a->shard_bytes), .loading = work.loading()});
    }
    std::printf("%.2f M parameters, %s, in %s\n",
                static_cast<double>(model.config().parameter_count()) / 1e6, name(dtype),
                a->out.c_str());
    return 0;
  };
}

}  // namespace spool
