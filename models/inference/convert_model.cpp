#include "spool/models/inference/convert_model.h"

#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/llmc_model.h"
#include "spool/models/formats/convert_elements.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The tokenizer in the model's directory.
std::unique_ptr<Tokenizer> tokenizer_of(const ModelFile& file) {
  const auto choice = tokenizer_in(file.directory());
  if (!choice) return nullptr;
  return open_tokenizer(*choice);
}

// Reads the file again only if a weight is not finite.
void check_finite_weights(const ModelFile& in, Model& model) {
  for (const Parameter* p : model.parameters()) {
    const Tensor& t = p->home ? p->home : p->data;
    if (first_not_finite({t.view().data(), t.nbytes()}, stored(t.dtype()))) {
      in.check_finite();
      check_file(!in.adapter(), in.name(), "with its adapter added, ", p->name,
                 " is not finite in ", name(t.dtype()));
    }
  }
}

void write_directory(const ModelFile& in, Model& model, uint64_t shard_bytes,
                     const fs::path& directory) {
  std::error_code error;
  const bool is_made = fs::create_directory(directory, error);
  if (!is_made) fail_file(directory, "made", error ? error.value() : EEXIST);
  const auto tokenizer = tokenizer_of(in);
  std::optional<int32_t> end_of_text;
  if (tokenizer) {
    end_of_text = end_of_text_within(*tokenizer, in.config().shape().vocabulary);
  } else if (!in.stop_tokens().empty()) {
    end_of_text = in.stop_tokens().front();
  }
  save_model(directory, model, {.end_of_text = end_of_text, .shard_bytes = shard_bytes});
  copy_side_files(in.directory(), directory);
  if (tokenizer) save_tokenizer(directory, *tokenizer);
  sync_tree(directory);
}

}  // namespace

void convert_model(const ModelFile& in, const fs::path& out, const ConvertOptions& options) {
  const DType dtype = options.dtype;
  check_setting(dtype == DType::f32 || dtype == DType::bf16, {"dtype"}, in.name(),
                ": a model file cannot have weights of ", name(dtype), "; choose f32 or bf16");
  const fs::path target = out.has_filename() ? out : out.parent_path();  // no trailing slash
  check_file(!path_exists(target), target, "is there already; choose another name");
  const auto* const gpt2 = in.config().as<Gpt2Config>();
  const bool for_llmc = target.extension() == ".bin";
  check_file(gpt2 || !for_llmc, target, "llm.c has model files of GPT-2 only, and this is a ",
             in.config().family(), "; choose a name that does not end in .bin, for a directory");
  constexpr int64_t one_token = 1;  // the model reads no text
  const auto make_model = [&](Stream& s) { return in.config().make(dtype, s, one_token); };
  const auto stream = open_stream_for([&](Stream& s) { make_model(s); }, Device{});
  const std::shared_ptr<Model> model = make_model(*stream);
  AtomicWrite output(target);
  in.load(*model, options.loading);
  stream->synchronize();
  check_finite_weights(in, *model);
  if (for_llmc) {
    LlmcModelWriter writer(output.path(), *gpt2, dtype);
    save_tensors(writer, stored_parameters(*model, {.conv1d = false}));
  } else {
    write_directory(in, *model, options.shard_bytes, output.path());
  }
  output.commit();
}

}  // namespace spool
