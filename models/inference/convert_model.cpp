#include "spool/models/inference/convert_model.h"

#include "spool/models/families/llmc_model.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/log.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The tokenizer in the model's directory, if its tokens are in the model's vocabulary.
std::unique_ptr<Tokenizer> tokenizer_of(const ModelFile& file) {
  const auto vocabulary = vocabulary_in(file.directory());
  if (!vocabulary) return nullptr;
  auto tokenizer = open_tokenizer({.name = "gpt2", .merges = *vocabulary});
  if (tokenizer->vocabulary() <= file.config().vocabulary) return tokenizer;
  logger().warn("{} is not copied: it has more tokens than the model's vocabulary",
                vocabulary->string());
  return nullptr;
}

void write_directory(const ModelFile& in, Gpt2& model, const fs::path& directory) {
  std::error_code error;
  const bool is_made = fs::create_directory(directory, error);
  if (!is_made) fail_file(directory, "made", error ? error.value() : EEXIST);
  const auto tokenizer = tokenizer_of(in);
  save_model(directory, model, tokenizer ? tokenizer->end_of_text() : in.end_of_text());
  if (tokenizer) save_tokenizer(directory, *tokenizer);
  sync_tree(directory);
}

}  // namespace

void convert_model(const ModelFile& in, const fs::path& out, DType dtype,
                   const FileProgress& progress) {
  check_setting(dtype == DType::f32 || dtype == DType::bf16, {"dtype"}, in.name(),
                ": a model file cannot have weights of ", name(dtype), "; choose f32 or bf16");
  const fs::path target = out.has_filename() ? out : out.parent_path();  // without a last slash
  check_file(!path_exists(target), target, "is there already; choose another name");
  const auto make_model = [&](Stream& stream) { return Gpt2(in.config(), dtype, stream); };
  const auto stream = open_stream_for([&](Stream& s) { make_model(s); }, Device{});
  Gpt2 model = make_model(*stream);
  AtomicWrite output(target);
  in.load(model, progress);
  if (target.extension() == ".bin") {
    LlmcModelWriter writer(output.path(), model.config(), dtype);
    save_tensors(writer, stored_parameters(model, {.conv1d = false}));
  } else {
    write_directory(in, model, output.path());
  }
  output.commit();
}

}  // namespace spool
