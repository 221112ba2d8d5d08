// runs: numbers
// Shards as files: what was saved is loaded unchanged, and every error names the file.

#include "spool/planner/sharding/shards_file.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "spool/autograd/ops.h"
#include "spool/autograd/parameters.h"
#include "spool/planner/sharding/shard_choice.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

// An MLP on (rows, 16), with 24 channels inside.
struct Mlp {
  MetaStream stream{Machine{}};
  Parameters parameters{stream, DType::f32};
  Program program = {};

  explicit Mlp(int64_t rows = 8) {
    Parameter &up = parameters.add("up.weight", {24, 16}), &bias = parameters.add("up.bias", {24}),
              &down = parameters.add("down.weight", {16, 24}),
              &last = parameters.add("down.bias", {16});
    Tape tape(stream, {.backward_follows = true});
    const Var x = tape.input(Tensor({{rows, 16}}, stream), /*needs_grad=*/true);
    sum(linear(gelu(linear(x, up, bias)), down, last));
    program = tape.take_program();
  }
};

class ShardsFile : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path) << text; }
  json saved() const {
    std::ifstream in(path);
    return json::parse(in);
  }
  Assignment load() const { return load_shards(path, mlp.program, mesh); }
  // Expects that the file with this change is refused so.
  template <class Change>
  void expect_refusal(std::initializer_list<std::string_view> words, const Change& change) {
    json file = original;
    change(file);
    write(file.dump());
    const ErrorFields fields = expect_error(ErrorKind::file, words, [&] { load(); });
    EXPECT_EQ(fields.file, path);
  }

  TemporaryDirectory directory;
  std::string path = (directory.path() / "shards.json").string();
  Mlp mlp;
  MeshAxes mesh = parse_mesh("2x2");
  MeshMachine machine = mesh_machine("h200", mesh);
  Assignment how = choose_shards(mlp.program, mesh, machine, ShardPolicy::megatron).how;
  json original = (save_shards(path, mlp.program, mesh, how), saved());
};

TEST_F(ShardsFile, LoadsWhatWasSavedAndSavesTheSameBytes) {
  for (const ShardPolicy policy : enumerators<ShardPolicy>()) {
    const Assignment chosen = choose_shards(mlp.program, mesh, machine, policy).how;
    save_shards(path, mlp.program, mesh, chosen);
    const json first = saved();
    const Assignment loaded = load();
    EXPECT_EQ(loaded.given, chosen.given);
    EXPECT_EQ(loaded.links, machine.links);
    for (size_t n = 0; n < chosen.nodes.size(); ++n) {
      EXPECT_EQ(loaded.nodes[n].axes, chosen.nodes[n].axes);
      EXPECT_EQ(loaded.nodes[n].inputs, chosen.nodes[n].inputs);
    }
    save_shards(path, mlp.program, mesh, loaded);
    EXPECT_EQ(saved(), first);
  }
}

TEST_F(ShardsFile, IsReadable) {
  EXPECT_EQ(original["mesh"], "2x2");
  EXPECT_EQ(original["nodes"].size(), 4u);
  EXPECT_EQ(original["nodes"][0].get<std::string>().back(), 'o');
  EXPECT_EQ(original["nodes"][1].get<std::string>().back(), 'c');
  EXPECT_EQ(original["nodes"][2].get<std::string>().back(), 'k');
  EXPECT_EQ(original["parameters"]["up.weight"][1], "cut 0");
  EXPECT_EQ(original["parameters"]["down.weight"][1], "cut 1");
}

TEST_F(ShardsFile, IsOfOneProgramAndMesh) {
  const Mlp larger(16);
  expect_error(ErrorKind::file, {path, "field tape_fingerprint", "is that of another model, batch"},
               [&] { load_shards(path, larger.program, mesh); });
  expect_error(ErrorKind::file,
               {path, "has shards for the mesh \"2x2\", and the mesh here is tensor=4"},
               [&] { load_shards(path, mlp.program, parse_mesh("tensor=4")); });
}

TEST_F(ShardsFile, RefusesAnotherVersion) {
  expect_refusal({"has shards of version 3, and this program reads versions 1 to 2"},
                 [](json& j) { j["spool_shards"] = 3; });
  expect_refusal({"has shards of version 0"}, [](json& j) { j["spool_shards"] = 0; });
  expect_refusal({"is not a file of shards"}, [](json& j) { j.erase("spool_shards"); });
  expect_refusal({"a file of shards has no field \"colour\""}, [](json& j) { j["colour"] = 1; });
}

TEST_F(ShardsFile, OfVersion1HasNoLinks) {
  json file = original;
  file["spool_shards"] = 1;
  file.erase("links");
  write(file.dump());
  EXPECT_TRUE(load().links.empty());
  EXPECT_EQ(load().given, how.given);
}

TEST_F(ShardsFile, RefusesOddLinks) {
  const auto refuse = [&](const char* words, const json& links) {
    expect_refusal({"field links", words}, [&](json& j) { j["links"] = links; });
  };
  const json fair{{"seconds", 8e-6}, {"bytes_per_second", 4.5e11}};
  refuse("there are 1 links, and the mesh 2x2 has 2 axes", json::array({fair}));
  refuse("is no rate of a link", json::array({fair, {{"seconds", 8e-6}, {"bytes_per_second", 0}}}));
  refuse("an exchange cannot take -1",
         json::array({fair, {{"seconds", -1}, {"bytes_per_second", 1}}}));
  refuse("seconds", json::array({fair, {{"bytes_per_second", 1}}}));
}

TEST_F(ShardsFile, RefusesWhatOpsCannotBeCutBy) {
  expect_refusal({"field nodes[0]", "cuts an index that linear nk,ok,+o->no of up.weight (node 0)",
                  "does not have; it has 'nko'"},
                 [](json& j) { j["nodes"][0] = "nz"; });
  expect_refusal({"field nodes[0]", "has 1 indices, and the mesh 2x2 has 2 axes"},
                 [](json& j) { j["nodes"][0] = "n"; });
  expect_refusal({"field nodes: there are 5, and the program has 4"},
                 [](json& j) { j["nodes"].push_back("--"); });
  expect_refusal({"field nodes[1]: 3"}, [](json& j) { j["nodes"][1] = 3; });
}

TEST_F(ShardsFile, RefusesWhatDoesNotDivide) {
  const Mlp odd(7);
  const Assignment whole = choose_shards(odd.program, mesh, machine, ShardPolicy::none).how;
  save_shards(path, odd.program, mesh, whole);
  json file = saved();
  file["nodes"][0] = "n-";
  write(file.dump());
  expect_error(ErrorKind::file,
               {"field nodes[0]: linear nk,ok,+o->no of up.weight (node 0) cannot be cut by \"n-\"",
                "its dimension 0 is 7, which 2 ranks do not divide; only 1 would"},
               [&] { load_shards(path, odd.program, mesh); });
}

TEST_F(ShardsFile, RefusesParametersThatAreNotTheModels) {
  expect_refusal({"field parameters.other", "the model has no parameter of this name"},
                 [](json& j) {
                   j["parameters"]["other"] = {"whole", "whole"};
                 });
  expect_refusal({"field parameters: the parameter \"up.bias\" is missing"},
                 [](json& j) { j["parameters"].erase("up.bias"); });
  expect_refusal({"is none of whole, shared, and cut 0 to cut 1"},
                 [](json& j) { j["parameters"]["up.weight"][0] = "cut 2"; });
  expect_refusal({"is none of whole, shared, and cut 0 to cut 0"},
                 [](json& j) { j["parameters"]["up.bias"][0] = "cut"; });
  expect_refusal({"there are 1 states, and the mesh 2x2 has 2 axes"},
                 [](json& j) { j["parameters"]["up.bias"] = {"whole"}; });
}

TEST_F(ShardsFile, RefusesWhatIsSharedAndReadWhole) {
  const auto none = choose_shards(mlp.program, mesh, machine, ShardPolicy::none).how;
  save_shards(path, mlp.program, mesh, none);
  original = saved();
  expect_refusal(
      {"field parameters.\"up.weight\": ", "it is shared along axis 1, and linear nk,ok,+o->no",
       "does not share it there; store it whole"},
      [](json& j) { j["parameters"]["up.weight"][1] = "shared"; });
}

TEST_F(ShardsFile, RefusesPartsThatDoNotDivide) {
  const MeshAxes five = parse_mesh("5");
  const auto none =
      choose_shards(mlp.program, five, mesh_machine("h200", five), ShardPolicy::none).how;
  save_shards(path, mlp.program, five, none);
  json file = saved();
  file["parameters"]["up.bias"][0] = "cut 0";
  write(file.dump());
  expect_error(ErrorKind::file,
               {"field parameters.\"up.bias\": ", "does not divide so on the mesh 5: S0"},
               [&] { load_shards(path, mlp.program, five); });
}

TEST_F(ShardsFile, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[]", "3", "{\"spool_shards\": \"one\"}", "nothing"}) {
    write(text);
    expect_error(ErrorKind::file, {path}, [&] { load(); });
  }
  expect_refusal({"nodes"}, [](json& j) { j.erase("nodes"); });
  expect_refusal({"parameters"}, [](json& j) { j["parameters"] = 4; });
  expect_refusal({"mesh"}, [](json& j) { j["mesh"] = json::array(); });
  expect_error(ErrorKind::file, {"no-such-file.json"},
               [&] { load_shards("no-such-file.json", mlp.program, mesh); });
}

}  // namespace
}  // namespace spool::testing
