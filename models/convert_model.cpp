#include "spool/models/convert_model.h"

#include "spool/models/llmc_model.h"
#include "spool/models/tokenizer_choice.h"
#include "spool/planner/rehearsal.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

void write_directory(const ModelFile& in, Gpt2& model, const fs::path& directory) {
  if (!fs::create_directory(directory)) fail_file(directory, "made", EEXIST);
  save_model(directory, model);
  if (const auto vocabulary = vocabulary_in(in.directory())) {
    save_tokenizer(directory, *open_tokenizer({.name = "gpt2", .merges = *vocabulary}));
  }
  sync_tree(directory);
}

}  // namespace

void convert_model(const ModelFile& in, const fs::path& out, DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, in.name(), ": its weights are ", name(dtype),
        "; give --dtype f32 or bf16");
  const fs::path named = out.has_filename() ? out : out.parent_path();  // without a last slash
  check_file(!fs::exists(named), named, "is there already; choose another name");
  const auto make_model = [&](Stream& stream) { return Gpt2(in.config(), dtype, stream); };
  const auto stream = open_stream_for([&](Stream& s) { make_model(s); }, Device{});
  Gpt2 model = make_model(*stream);
  Partial partial(named);
  in.load(model);
  if (named.extension() == ".bin") {
    LlmcModelWriter writer(partial.path(), model.config(), dtype);
    save_tensors(writer, stored_parameters(model, {.conv1d = false}));
  } else {
    write_directory(in, model, partial.path());
  }
  partial.commit();
}

}  // namespace spool
