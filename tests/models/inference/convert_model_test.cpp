// Models converted from one format to another, with their tokenizers.

#include "spool/models/inference/convert_model.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/json.h"
#include "tests/models/families/model_file_testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

class ConvertModel : public ModelFileTest {
 protected:
  // Converts `in`; returns the path of the result.
  fs::path to(const std::string& out, const fs::path& in, DType dtype = DType::f32) const {
    convert_model(ModelFile(in), d_.path() / out, {.dtype = dtype});
    return d_.path() / out;
  }
};

TEST_F(ConvertModel, KeepsTheParametersThereAndBack) {
  const auto model = make(small);
  save_model(d_.path(), *model, {});
  const fs::path llmc = to("m.bin", d_.path());
  expect_equal(*load(llmc), *model);
  expect_equal(*load(to("back/", llmc)), *model);
  EXPECT_EQ(ModelFile(to("half.bin", d_.path(), DType::bf16)).dtype(), DType::bf16);
}

TEST_F(ConvertModel, WritesTheTokenizerAndItsEndOfText) {
  save_model(d_.path(), *make(small), {});
  nlohmann::json config = read_json(d_.path() / "config.json").value();
  config.erase("eos_token_id");
  d_.file("config.json", config.dump());
  d_.file("merges.txt", "a b\n");
  const fs::path out = to("other", d_.path());
  EXPECT_EQ(names_in(out), (std::set<std::string>{"config.json", "merges.txt", "model.safetensors",
                                                  "tokenizer_config.json", "vocab.json"}));
  EXPECT_EQ(read_json(out / "vocab.json").value()["ab"], 256);
  EXPECT_EQ(read_json(out / "config.json").value()["eos_token_id"], 257);
}

TEST_F(ConvertModel, KeepsTheEndOfTextOfAModelWithoutATokenizer) {
  save_model(d_.path(), *make(small), {.end_of_text = 7});
  EXPECT_EQ(read_json(to("other", d_.path()) / "config.json").value()["eos_token_id"], 7);
}

TEST_F(ConvertModel, KeepsATokenizerWithMoreTokensThanTheModel) {
  save_model(d_.path(), *make(small), {});
  std::string many;
  for (const char a : std::string("abcdefgh")) many += sentence(a, " ", a, "\n", a, " x\n");
  d_.file("merges.txt", many);
  const fs::path out = to("other", d_.path());
  EXPECT_TRUE(fs::exists(out / "merges.txt"));
  EXPECT_NO_THROW(ModelFile{out});  // the model lacks the end-of-text token
}

TEST_F(ConvertModel, RefusesOutputsItCannotWriteAndLeavesNothing) {
  save_model(d_.path(), *make(small), {});
  to("there", d_.path());
  to("there.bin", d_.path());
  const std::set<std::string> before = names_in(d_.path());
  const auto refused = [&](ErrorKind kind, const std::string& out, std::string_view words,
                           DType dtype = DType::f32) {
    expect_error(kind, {words}, [&] { to(out, d_.path(), dtype); });
  };
  refused(ErrorKind::file, "there", "is there already");
  refused(ErrorKind::file, "there.bin", "is there already");
  refused(ErrorKind::file, "none/m.bin", "No such file");
  refused(ErrorKind::invalid, "f64.bin", "f32 or bf16", DType::f64);
  EXPECT_EQ(names_in(d_.path()), before);
}

TEST_F(ConvertModel, RefusesAWeightThatIsOrWouldBeInfiniteAndLeavesNothing) {
  const auto model = make(small);
  const auto refused = [&](size_t parameter, float weight, DType to_type, std::string_view words) {
    Parameter& p = *model->parameters()[parameter];
    const Tensor before = p.data;
    std::vector<float> elements(static_cast<size_t>(p.data.shape().numel()), 0.5f);
    elements[3] = weight;
    p.data = make_tensor<float>(p.data.shape(), elements, stream_);
    save_model(d_.path(), *model, {});
    p.data = before;
    const std::set<std::string> names = names_in(d_.path());
    for (const char* out : {"out", "out.bin"}) {
      expect_error(ErrorKind::file, {"model.safetensors: tensor ", words},
                   [&] { to(out, d_.path(), to_type); });
      EXPECT_EQ(names_in(d_.path()), names);
    }
  };
  const size_t last = model->parameters().size() - 1;
  refused(0, 3.4e38f, DType::bf16, ": element 3 is 3.4e+38, which is beyond the numbers of bf16");
  refused(last, -3.4e38f, DType::bf16, ": element 3 is -3.4e+38");
  for (const DType type : {DType::bf16, DType::f32}) {
    refused(0, INFINITY, type, ": element 3 is not finite");
    refused(last, NAN, type, ": element 3 is not finite");
  }
}

TEST_F(ConvertModel, RefusesConfigurationsThatLlmcDoesNotHave) {
  Gpt2Config other = small;
  other.epsilon = 0.1;
  save_model(d_.path(), *make(other), {});
  const std::set<std::string> before = names_in(d_.path());
  expect_error(ErrorKind::invalid, {"epsilon"}, [&] { to("e.bin", d_.path()); });
  EXPECT_EQ(names_in(d_.path()), before);
}

}  // namespace
}  // namespace spool::testing
