// The safetensors format: reading, writing, and refusing files that are wrong.

#include "spool/models/formats/safetensors.h"

#include <algorithm>
#include <cstring>

#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::content_of;
using testing::error_of;
using testing::expect_error;
using testing::source_folder;
using testing::TemporaryDirectory;

std::string with_length(const std::string& header, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header;
}

std::string with_length(const std::string& header) { return with_length(header, header.size()); }

std::string bytes_of(const TensorReader& file, const std::string& tensor) {
  const StoredTensor* stored = file.find(tensor);
  std::string bytes(stored->spec.nbytes(), '\0');
  file.read(*stored, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

constexpr const char* good =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";
const std::string good_file = with_length(good) + "ABCDEFGHIJ";

TEST(Safetensors, ReadsFilesOfOtherPrograms) {
  const TemporaryDirectory d;
  const SafetensorsReader file(d.file("x", good_file));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find("a")->spec, (Spec{Shape{2, 1}, DType::f32}));
  EXPECT_EQ(file.find("b")->spec, (Spec{Shape{}, DType::bf16}));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(bytes_of(file, "a"), "ABCDEFGH");
  EXPECT_EQ(bytes_of(file, "b"), "IJ");
  std::byte two[2];
  expect_error(ErrorKind::invalid, {"2 bytes", "byte 7", "\"a\""},
               [&] { file.read(*file.find("a"), 7, two); });
  expect_error(ErrorKind::invalid, {"byte 18446744073709551615"},
               [&] { file.read(*file.find("a"), UINT64_MAX, two); });
}

TEST(Safetensors, ReadsTheReferenceFiles) {
  const fs::path folder = source_folder() / "tests/reference";
  const SafetensorsReader parameters(folder / "gpt2.safetensors");
  const SafetensorsReader expected(folder / "gpt2_expected.safetensors");
  EXPECT_EQ(parameters.metadata().at("n_embd"), "24");
  EXPECT_EQ(parameters.find("h.1.attn.c_attn.weight")->spec, (Spec{Shape{24, 72}, DType::f32}));
  EXPECT_EQ(expected.find("loss")->spec, (Spec{Shape{}, DType::f64}));
  for (const StoredTensor& t : parameters.tensors()) {
    const StoredTensor* gradient = expected.find("grad." + t.name);
    ASSERT_TRUE(gradient) << t.name;
    EXPECT_EQ(gradient->spec.shape, t.spec.shape);
  }
}

TEST(Safetensors, WritesTensorsInPiecesOfAnyOrder) {
  const TemporaryDirectory d;
  const fs::path path = d.path() / "x.safetensors";
  SafetensorsWriter out(path,
                        {{"z", {Shape{3}, DType::i32}},
                         {"a", {Shape{2, 0}, DType::f32}},
                         {"m \"\xc3\xa9", {Shape{2, 2}, DType::u16}}},
                        {{"step", "100"}});
  const auto write = [&](size_t tensor, uint64_t begin, std::string_view text) {
    out.write(out.tensors()[tensor], begin, std::as_bytes(std::span(text)));
  };
  write(0, 4, "456789ab");
  write(0, 0, "0123");
  write(2, 4, "GHIJ");
  expect_error(ErrorKind::invalid, {"16 of 20 bytes"}, [&] { out.finish(); });
  write(2, 0, "CDEF");
  expect_error(ErrorKind::invalid, {"1 bytes", "byte 8"}, [&] { write(2, 8, "x"); });
  expect_error(ErrorKind::invalid, {"byte 18446744073709551615"},
               [&] { write(2, UINT64_MAX, "x"); });
  out.finish();
  const SafetensorsReader in(path);
  EXPECT_EQ(bytes_of(in, "z"), "0123456789ab");
  EXPECT_EQ(bytes_of(in, "m \"\xc3\xa9"), "CDEFGHIJ");
  EXPECT_EQ(in.find("a")->spec, (Spec{Shape{2, 0}, DType::f32}));
  EXPECT_EQ(in.metadata().at("step"), "100");
  uint64_t length = 0;
  std::memcpy(&length, content_of(path).data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(fs::file_size(path), 8 + length + 20);
}

TEST(Safetensors, WriterRefusesNamesThatNoFileCanHave) {
  const TemporaryDirectory d;
  const Spec spec{Shape{1}, DType::f32};
  const auto refused = [&](const std::vector<StoredTensor>& tensors, std::string_view words) {
    expect_error(ErrorKind::invalid, {words}, [&] { SafetensorsWriter(d.path() / "x", tensors); });
  };
  refused({{"a", spec}, {"a", spec}}, "two tensors are named \"a\"");
  refused({{"__metadata__", spec}}, "__metadata__");
  refused({{"\xff", spec}}, "not UTF-8");
}

TEST(Safetensors, WriterReportsWhyAFileCannotBeWritten) {
  const TemporaryDirectory d;
  expect_error(ErrorKind::file, {"cannot be written", "Is a directory"},
               [&] { SafetensorsWriter(d.path(), {}); });
  expect_error(ErrorKind::file, {"/dev/full: cannot be written: No space left on device"},
               [] { SafetensorsWriter("/dev/full", {}, {}); });
}

TEST(Safetensors, RefusesAFileOfAnotherLength) {
  const TemporaryDirectory d;
  for (size_t size = 0; size < good_file.size(); ++size) {
    const fs::path path = d.file("cut", good_file.substr(0, size));
    SCOPED_TRACE(size);
    expect_error(ErrorKind::file, {path.string()}, [&] { SafetensorsReader file(path); });
  }
  for (const size_t size : {good_file.size() - 1, good_file.size() - 10, size_t{20}}) {
    expect_error(ErrorKind::file, {"cut short", "download"},
                 [&] { SafetensorsReader file(d.file("part", good_file.substr(0, size))); });
  }
  expect_error(ErrorKind::file, {"10 bytes", "11 bytes of data"},
               [&] { SafetensorsReader file(d.file("long", good_file + "K")); });
}

TEST(Safetensors, SaysWhatCameInPlaceOfAFile) {
  using std::string_literals::operator""s;
  const TemporaryDirectory d;
  const auto refused = [&](const char* name, const std::string& content,
                           std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(name);
    expect_error(ErrorKind::file, words, [&] { SafetensorsReader file(d.file(name, content)); });
  };
  refused("a", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n",
          {"Git LFS", "git lfs pull"});
  refused("b", "<!DOCTYPE html>\n<title>404</title>", {"web page", "downloaded again"});
  refused("c", "Repository not found", {"is text that begins \"Repository not found\""});
  refused("d", std::string(4096, '\0'), {"nothing but zeros"});
  refused("e", "GGUF\3\0\0\0\1\0\0\0"s, {"GGUF", "safetensors"});
  refused("f", "\x80\2}q\1X\2\0\0\0"s, {"pickle", "save_pretrained"});
  refused("g.safetensors.incomplete", good_file, {"part of a download"});
}

// With any one byte changed, the file can be read or is refused by name.
TEST(Safetensors, ReadsOrRefusesAFileWithAnyOneByteChanged) {
  const TemporaryDirectory d;
  int refused = 0, read = 0;
  for (size_t i = 0; i + 10 < good_file.size(); ++i) {
    for (char value : std::string_view("\0\t\"-09[]{},.e\x7f\xff", 15)) {
      std::string wrong = good_file;
      wrong[i] = value;
      const fs::path path = d.file("wrong", wrong);
      const std::string error = error_of([&] {
        const SafetensorsReader file(path);
        for (const StoredTensor& t : file.tensors()) bytes_of(file, t.name);
      });
      ++(error.empty() ? read : refused);
      EXPECT_TRUE(error.empty() || contains(error, path.string())) << error;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 100);
}

// Opens a file with eight bytes of data and this entry of a tensor "t".
void open_entry(const std::string& entry) {
  const TemporaryDirectory d;
  const fs::path path = d.file("x", with_length("{\"t\":" + entry + "}") + "ABCDEFGH");
  SafetensorsReader file(path);
}

std::string entry_of(const std::string& dtype, const std::string& shape,
                     const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

constexpr const char* wrong_shapes[] = {"[-2]",
                                        "[2.0]",
                                        "[\"2\"]",
                                        "[[2]]",
                                        "2",
                                        "null",
                                        "{}",
                                        "[1,1,1,1,2]",
                                        "[4294967296,4294967296]",
                                        "[18446744073709551615]",
                                        "[9223372036854775808,2]",
                                        "[4611686018427387904,2]",
                                        "[2,4611686018427387905]",
                                        "[1e30]",
                                        "[true]",
                                        "[0,18446744073709551615,18446744073709551615]",
                                        "[99999999999999999999999]"};

constexpr const char* wrong_offsets[] = {"[0]",
                                         "[0,8,8]",
                                         "[]",
                                         "[8,0]",
                                         "[-8,0]",
                                         "[0,9]",
                                         "[0,4]",
                                         "[4,8]",
                                         "[0,8.0]",
                                         "[0,\"8\"]",
                                         "8",
                                         "null",
                                         "[0,18446744073709551615]",
                                         "[18446744073709551615,8]",
                                         "[0,99999999999999999999999]"};

TEST(Safetensors, RefusesEachFieldThatIsWrong) {
  open_entry(entry_of("\"F32\"", "[2]", "[0,8]"));
  open_entry(entry_of("\"F32\"", "[1,2,1,1]", "[0,8]"));
  const auto refused = [](const std::string& entry, std::string_view field) {
    SCOPED_TRACE(entry);
    expect_error(ErrorKind::file, {": field t", field}, [&] { open_entry(entry); });
  };
  for (const char* dtype : {"\"f32\"", "\"\"", "3", "null", "[]"})
    refused(entry_of(dtype, "[2]", "[0,8]"), "dtype");
  for (const char* shape : wrong_shapes) refused(entry_of("\"F32\"", shape, "[0,8]"), "shape");
  expect_error(ErrorKind::file, {"starts at byte 1"},
               [] { open_entry(entry_of("\"F32\"", "[2]", "[1,9]")); });
  // The offsets must hold what type and shape need.
  refused(entry_of("\"F16\"", "[2]", "[0,8]"), "data_offsets: there are 8 bytes");
  for (const char* shape : {"[3]", "[0]", "[]"})
    refused(entry_of("\"F32\"", shape, "[0,8]"), "data_offsets: there are 8 bytes");
  for (const char* offsets : wrong_offsets)
    refused(entry_of("\"F32\"", "[2]", offsets), "data_offsets");
  for (const char* other : {"3", "null", "[]", "\"F32\""}) refused(other, "object");
  refused("{}", "is missing");
  refused(R"({"dtype":"F32"})", "is missing");
  refused(R"({"dtype":"F32","shape":[2]})", "data_offsets is missing");
}

// A header of two f32 tensors "a" and "b" with these data_offsets, and eight bytes of data.
std::string two_tensors(const std::string& a, const std::string& b) {
  const std::string f32 = R"({"dtype":"F32","shape":[1],"data_offsets":)";
  return with_length("{\"a\":" + f32 + a + "},\"b\":" + f32 + b + "}}") + "ABCDEFGH";
}

void open_content(const std::string& content) {
  const TemporaryDirectory d;
  SafetensorsReader file(d.file("x", content));
}

void expect_refused(const std::string& content, std::string_view words) {
  expect_error(ErrorKind::file, {"/x: ", words}, [&] { open_content(content); });
}

TEST(Safetensors, RefusesTensorsThatDoNotFillTheDataOnceEach) {
  open_content(two_tensors("[0,4]", "[4,8]"));
  open_content(two_tensors("[4,8]", "[0,4]"));
  expect_refused(two_tensors("[0,4]", "[0,4]"), "starts at byte 0 of the data");
  expect_refused(two_tensors("[0,4]", "[3,7]"), "starts at byte 3 of the data");
  expect_refused(two_tensors("[4,8]", "[4,8]"), "starts at byte 4 of the data");
  expect_refused(with_length("{}") + "x", "1 bytes of data");
  const std::string none = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  open_content(with_length("{\"a\":" + none + ",\"b\":" + none + "}"));
  expect_refused(with_length("{\"a\":" + none + ",\"a\":" + none + "}"), "twice");
}

TEST(Safetensors, RefusesAHeaderThatIsNotAnObject) {
  open_content(with_length("{}"));
  open_content(with_length("{}  "));
  expect_refused(with_length(" {}"), "does not start with {");
  expect_refused(with_length("[]"), "does not start with {");
  expect_refused(with_length(""), "does not start with {");
  expect_refused(with_length("{} {}"), "is not JSON");
  expect_refused(with_length(R"({"__metadata__":3})"), "3 is not a JSON object");
  expect_refused(with_length(R"({"__metadata__":{"a":3}})"), "3 is not a string");
}

TEST(Safetensors, RefusesAHeaderTooLongOrNestedTooDeeply) {
  expect_refused(with_length("{}", UINT64_MAX), "18446744073709551615");
  expect_refused(with_length("{}", 100'000'001), "at most 100000000");
  expect_refused(with_length("{}", 3), "and 2 follow");
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 1'000'000; ++i) many += ",0";
  expect_refused(with_length(many + "]}"), "more than 1000000 values");
  std::string bomb = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) bomb += "[";
  expect_refused(with_length(bomb), "nested deeper");
}

TEST(Safetensors, QuotesOnlyTheBeginningOfALongName) {
  const std::string odd = with_length("{\"" + std::string(1000, '\\') + "\":3}");
  const std::string error = error_of([&] { open_content(odd); });
  EXPECT_TRUE(contains(error, "...")) << error;
  EXPECT_LT(error.size(), 400u);
}

TEST(Safetensors, ReaderReportsWhyAFileCannotBeRead) {
  const TemporaryDirectory d;
  expect_error(ErrorKind::file, {"/no", "No such file"},
               [&] { SafetensorsReader file(d.path() / "no"); });
  expect_error(ErrorKind::file, {"is a directory"}, [&] { SafetensorsReader file(d.path()); });
  expect_error(ErrorKind::file, {"/dev/zero", "not a regular file"},
               [&] { SafetensorsReader file("/dev/zero"); });
}

}  // namespace
}  // namespace spool
