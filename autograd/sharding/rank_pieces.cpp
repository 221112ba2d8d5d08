#include "spool/autograd/sharding/rank_pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace spool {
namespace {

// The elements before, along and behind a dimension.
struct PiecedDimension {
  int64_t outer = 1, extent = 1, inner = 1;

  PiecedDimension(const RankPieces& pieces, const Shape& tensor) : extent(tensor.numel()) {
    if (pieces.parts.empty()) return;
    for (int d = 1; d <= pieces.behind; ++d) inner *= tensor[-d];
    extent = std::accumulate(pieces.parts.begin(), pieces.parts.end(), int64_t{0});
    outer = tensor.numel() / std::max<int64_t>(extent * inner, 1);
  }
};

void launch_all(Stream& stream, const Grad& out, const View& in,
                const std::vector<CopyBlocks::Block>& blocks) {
  CopyBlocks kernel{.out = out, .in = in};
  for (const CopyBlocks::Block& b : blocks) {
    kernel.blocks.add(b);
    if (!kernel.blocks.full()) continue;
    launch(kernel, stream);
    kernel.blocks = {};
  }
  if (kernel.blocks.size() > 0) launch(kernel, stream);
}

}  // namespace

bool RankPieces::are_in_order(const Shape& tensor) const {
  return parts.size() <= 1 && PiecedDimension(*this, tensor).outer <= 1;
}

RankPieces::Blocks RankPieces::blocks(const Shape& tensor, Range some, int ranks) const {
  const auto [outer, extent, inner] = PiecedDimension(*this, tensor);
  Blocks all;
  int64_t before = 0;
  for (const int64_t part : parts.empty() ? std::vector{extent} : parts) {
    const int64_t width = part / ranks * inner;
    all.push_back({.times = some.size(),
                   .rows = outer,
                   .width = width,
                   .out_step = tensor.numel() / ranks,
                   .in_step = width,
                   .out_stride = extent / ranks * inner,
                   .in_stride = extent * inner,
                   .out_first = before / ranks * inner,
                   .in_first = before * inner + some.begin * width});
    before += part;
  }
  return all;
}

void RankPieces::pack(Stream& stream, const Grad& packed, const View& tensor, Range some,
                      int ranks) const {
  launch_all(stream, packed, tensor, blocks(tensor.shape(), some, ranks));
}

void RankPieces::unpack(Stream& stream, const Grad& tensor, const View& packed, int ranks) const {
  Blocks back = blocks(tensor.view.shape(), {0, ranks}, ranks);
  for (CopyBlocks::Block& b : back) {
    std::swap(b.out_step, b.in_step);
    std::swap(b.out_stride, b.in_stride);
    std::swap(b.out_first, b.in_first);
  }
  launch_all(stream, tensor, packed, back);
}

}  // namespace spool
