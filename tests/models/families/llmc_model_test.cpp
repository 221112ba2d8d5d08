// GPT-2 in the model files of llm.c, written and read.

#include "spool/models/families/llmc_model.h"

#include <cstring>

#include "tests/models/families/model_file_testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

using LlmcModel = ModelFileTest;

TEST_F(LlmcModel, LoadsWhatWasSaved) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = make(small, dtype);
    const fs::path path = d_.path() / "model.bin";
    save_llmc(*model, path);
    EXPECT_EQ(ModelFile(path).config(), small);
    EXPECT_EQ(ModelFile(path).dtype(), dtype);
    expect_equal(*load(path, dtype), *model);
  }
}

// Compares byte by byte with the documented layout.
TEST_F(LlmcModel, IsLaidOutAsDocumented) {
  const auto model = make(small);
  save_llmc(*model, d_.path() / "m.bin");
  const std::string file = content_of(d_.path() / "m.bin");
  int32_t header[256];
  std::memcpy(header, file.data(), sizeof(header));
  const int32_t expected[] = {20240326, 3, 6, 270, 2, 2, 8, 384};
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(header[i], i < 8 ? expected[i] : 0);
  const auto number = [&](size_t at) {
    float x = 0;
    std::memcpy(&x, file.data() + 1024 + 4 * at, 4);
    return x;
  };
  const Parameters& parameters = model->parameters();
  const auto wte = read<float>(parameters[0]->data), wpe = read<float>(parameters[1]->data);
  EXPECT_EQ(number(269 * 8 + 7), wte[269 * 8 + 7]);
  for (size_t i = 270 * 8; i < 384 * 8; ++i) ASSERT_EQ(number(i), 0);
  EXPECT_EQ(number(384 * 8 + 3), wpe[3]);
  // The second layer's qkv weights: after wte, wpe, 2 x ln1w, 2 x ln1b and the first layer's.
  const size_t qkvw = 384 * 8 + 6 * 8 + 4 * 8;
  const auto second = read<float>(parameters[2 + 12 + 2]->data);
  EXPECT_EQ(parameters[2 + 12 + 2]->name, std::string("h.1.attn.c_attn.weight"));
  for (size_t i = 0; i < 192; ++i) ASSERT_EQ(number(qkvw + 192 + i), second[i]);
  const auto last = read<float>(parameters[parameters.size() - 1]->data);
  EXPECT_EQ(number((file.size() - 1024) / 4 - 1), last.back());
}

TEST_F(LlmcModel, HasTheFileSizeOfLlmc) {
  const auto size = [&](DType dtype) {
    const LlmcModelWriter writer(d_.path() / "124m", Gpt2Config{}, dtype);
    const StoredTensor& last = writer.tensors().back();
    return 1024 + last.begin + last.spec.nbytes();
  };
  EXPECT_EQ(size(DType::f32), 497'904'640u);
  EXPECT_EQ(size(DType::bf16), 248'952'832u);
}

TEST_F(LlmcModel, RefusesEachHeaderFieldThatIsWrong) {
  save_llmc(*make(small), d_.path() / "good.bin");
  const std::string good = content_of(d_.path() / "good.bin");
  const auto open_with = [&](size_t field, int32_t value) {
    std::string file = good;
    std::memcpy(file.data() + 4 * field, &value, 4);
    LlmcModelReader reader(d_.file("m.bin", file));
  };
  const auto refused = [&](size_t field, int32_t value, std::string_view words) {
    SCOPED_TRACE(sentence("field ", field, " is ", value));
    expect_error(ErrorKind::file, {"m.bin: ", words}, [&] { open_with(field, value); });
  };
  EXPECT_NO_THROW(open_with(0, 20240326));
  EXPECT_NO_THROW(open_with(3, 7));  // a smaller vocabulary in as many rows
  for (const size_t field : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u}) {
    for (const int32_t value : {-1, INT32_MIN, INT32_MAX, 0, 1 << 20, 7}) {
      if (field == 3 && value == 7) continue;
      refused(field, value, "header");
    }
  }
  refused(1, 4, "header field 1, version, is 4");
  refused(5, 3, "must divide the 8 channels");
  refused(7, 269, "between the vocabulary, 270");
}

TEST_F(LlmcModel, RefusesAFileOfAnotherLength) {
  save_llmc(*make(small), d_.path() / "good.bin");
  const std::string good = content_of(d_.path() / "good.bin");
  const auto refused = [&](const std::string& content) {
    expect_error(ErrorKind::file, {"m.bin: ", "bytes long"},
                 [&] { LlmcModelReader reader(d_.file("m.bin", content)); });
  };
  for (size_t size = 0; size < good.size(); size += size < 1100 ? 1 : 997)
    refused(good.substr(0, size));
  refused(good + "x");
}

}  // namespace
}  // namespace spool::testing
