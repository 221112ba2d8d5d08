#include "spool/kernels/head_norm.h"
#include "spool/kernels/rms_norm.h"
#include "spool/kernels/rope.h"
#include "spool/kernels/swiglu.h"
#include "tests/kernels/kernel_entry.h"

namespace spool::testing {
namespace {

using namespace entries;

// B = 2, T = 3, H = 2, Hkv = 1, D = 4.
std::vector<Launch> kernels_of_head_norm() {
  constexpr Heads heads{.query = 2, .key = 1};
  return {
      entry(
          {{"y", {2, 3, 16}}, {"r", {6, 3}, f32}, {"x", {2, 3, 16}}, {"query", {4}}, {"key", {4}}},
          [=](const Given& g) {
            return HeadNormForward{.y = g["y"],
                                   .r = g["r"],
                                   .x = g["x"],
                                   .query = g["query"],
                                   .key = g["key"],
                                   .heads = heads};
          }),
      entry({{"dx", {2, 3, 16}, bf16, {absent}},
             {"dquery", {4}, bf16, {absent}},
             {"dkey", {4}, bf16, {absent}},
             {"dy", {2, 3, 16}},
             {"x", {2, 3, 16}},
             {"query", {4}},
             {"key", {4}},
             {"r", {6, 3}, f32}},
            [=](const Given& g) {
              return HeadNormBackward{.dx = g["dx"],
                                      .dquery = g["dquery"],
                                      .dkey = g["dkey"],
                                      .dy = g["dy"],
                                      .x = g["x"],
                                      .query = g["query"],
                                      .key = g["key"],
                                      .r = g["r"],
                                      .heads = heads};
            }),
  };
}

// For rope: B = 2, T = 3, H = 2, Hkv = 1, D = 4; without positions it begins at 2.
std::vector<Launch> other_kernels() {
  constexpr Heads heads{.query = 2, .key = 1};
  return {
      entry({{"y", {2, 3, 5}}, {"r", {6}, f32}, {"x", {2, 3, 5}}, {"weight", {5}}},
            [](const Given& g) {
              return RmsNormForward{.y = g["y"], .r = g["r"], .x = g["x"], .weight = g["weight"]};
            }),
      entry({{"dx", {2, 3, 5}, bf16, {absent}},
             {"dweight", {5}, bf16, {absent}},
             {"dy", {2, 3, 5}},
             {"x", {2, 3, 5}},
             {"weight", {5}},
             {"r", {6}, f32}},
            [](const Given& g) {
              return RmsNormBackward{.dx = g["dx"],
                                     .dweight = g["dweight"],
                                     .dy = g["dy"],
                                     .x = g["x"],
                                     .weight = g["weight"],
                                     .r = g["r"]};
            }),
      entry({{"y", {2, 3, 5}}, {"x", {2, 3, 10}}},
            [](const Given& g) { return SwigluForward{.y = g["y"], .x = g["x"]}; }),
      entry(
          {{"dx", {2, 3, 10}}, {"dy", {2, 3, 5}}, {"x", {2, 3, 10}}},
          [](const Given& g) { return SwigluBackward{.dx = g["dx"], .dy = g["dy"], .x = g["x"]}; }),
      entry(
          {{"y", {2, 3, 16}}, {"x", {2, 3, 16}}, {"table", {5, 4}, f32}},
          [=](const Given& g) {
            return Rope{
                .y = g["y"], .x = g["x"], .table = g["table"], .heads = heads, .first_position = 2};
          }),
      entry({{"y", {2, 3, 16}},
             {"x", {2, 3, 16}},
             {"table", {5, 4}, f32, {any_rows}},
             {"positions", {2, 3}, i32, {absent}}},
            [=](const Given& g) {
              return Rope{.y = g["y"],
                          .x = g["x"],
                          .table = g["table"],
                          .positions = g["positions"],
                          .heads = heads};
            }),
  };
}

}  // namespace

std::vector<Launch> kernels_of_llama() {
  std::vector<Launch> all = other_kernels();
  for (Launch& more : kernels_of_head_norm()) all.push_back(std::move(more));
  return all;
}

}  // namespace spool::testing
