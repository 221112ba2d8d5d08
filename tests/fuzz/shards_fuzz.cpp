#include <cstdlib>

#include "fuzz.h"
#include "spool/autograd/ops.h"
#include "spool/autograd/parameters.h"
#include "spool/planner/sharding/shards_file.h"
#include "spool/runtime/meta/stream.h"

namespace {

using namespace spool;

// An MLP on (8, 16), with 24 channels inside.
struct Mlp {
  MetaStream stream{Machine{}};
  Parameters parameters{stream, DType::f32};
  Program program = {};

  Mlp() {
    Parameter &up = parameters.add("up.weight", {24, 16}), &bias = parameters.add("up.bias", {24}),
              &down = parameters.add("down.weight", {16, 24});
    Tape tape(stream, {.backward_follows = true});
    const Var x = tape.input(Tensor({{8, 16}}, stream), /*needs_grad=*/true);
    sum(linear(gelu(linear(x, up, bias)), down));
    program = tape.take_program();
  }
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Mlp mlp;
  static const MeshAxes mesh = parse_mesh("2x2");
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const Assignment how = load_shards(path, mlp.program, mesh);
    if (how.nodes.size() != 4 || how.given.size() != 3) std::abort();
  });
  return 0;
}
