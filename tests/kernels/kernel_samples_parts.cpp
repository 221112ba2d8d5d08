// The kernels of a vocabulary in parts.

#include "spool/kernels/cross_entropy_part.h"
#include "spool/kernels/embedding.h"
#include "tests/kernels/kernel_entry.h"

namespace spool::testing {
namespace {

using namespace entries;

constexpr VocabularyPart second{.first = 7, .whole = 20};

std::vector<Launch> losses_of_parts() {
  return {
      entry({{"statistics", {6, 4}, f32},
             {"logits", {6, 5}, bf16, {sets_size}},
             {"targets", {6}, i32}},
            [](const Given& g) {
              return CrossEntropyStatistics{.statistics = g["statistics"],
                                            .logits = g["logits"],
                                            .targets = g["targets"],
                                            .part = second,
                                            .options = {.label_smoothing = 0.1f}};
            }),
      entry({{"logits", {6, 5}, bf16, {sets_size}},
             {"statistics", {4, 6, 3}, f32, {any_rows}},
             {"targets", {6}, i32},
             {"losses", {6}, f32, {absent}},
             {"scale", {1}, f32, {absent}},
             {"upstream", {6}, f32, {absent}}},
            [](const Given& g) {
              return CrossEntropyJoined{.logits = g["logits"],
                                        .statistics = g["statistics"],
                                        .targets = g["targets"],
                                        .losses = g["losses"],
                                        .gradient = true,
                                        .scale = g["scale"],
                                        .upstream = g["upstream"],
                                        .part = second};
            }),
  };
}

std::vector<Launch> embeddings_of_parts() {
  return {
      entry({{"y", {2, 3, 5}},
             {"tokens", {2, 3}, i32},
             {"weight", {7, 5}, bf16, {any_rows}},
             {"positions", {3, 5}, bf16, {absent}}},
            [](const Given& g) {
              return EmbeddingForward{.y = g["y"],
                                      .tokens = g["tokens"],
                                      .weight = g["weight"],
                                      .positions = g["positions"],
                                      .part = second};
            }),
      entry({{"dweight", {7, 5}, bf16, {absent, any_rows}},
             {"dpositions", {3, 5}, bf16, {absent}},
             {"dy", {2, 3, 5}},
             {"tokens", {2, 3}, i32}},
            [](const Given& g) {
              return EmbeddingBackward{.dweight = g["dweight"],
                                       .dpositions = g["dpositions"],
                                       .dy = g["dy"],
                                       .tokens = g["tokens"],
                                       .part = second};
            }),
  };
}

}  // namespace

std::vector<Launch> kernels_of_parts() {
  std::vector<Launch> all = losses_of_parts();
  for (Launch& more : embeddings_of_parts()) all.push_back(std::move(more));
  return all;
}

}  // namespace spool::testing
