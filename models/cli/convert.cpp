#include <cstdio>
#include <memory>

#include "spool/models/cli/commands.h"
#include "spool/models/inference/convert_model.h"

namespace spool {

std::function<int()> add_convert(CLI::App& app) {
  struct ConvertArguments {
    std::string in, out, dtype;
  };
  const auto a = std::make_shared<ConvertArguments>();
  app.add_option("IN", a->in, "Model: " + std::string(model_forms))->required();
  app.add_option("OUT", a->out,
                 "FILE.bin for llm.c; any other name is a directory, for transformers")
      ->required();
  add_dtype_flag(app, a->dtype, "f32 or bf16; by default what the model has");
  return [a] {
    const ModelFile model(a->in);
    const DType dtype = a->dtype.empty() ? model.dtype() : *parse<DType>(a->dtype);
    convert_model(model, a->out, dtype);
    std::printf("%.2f M parameters, %s, in %s\n",
                static_cast<double>(model.config().parameter_count()) / 1e6, name(dtype),
                a->out.c_str());
    return 0;
  };
}

}  // namespace spool
