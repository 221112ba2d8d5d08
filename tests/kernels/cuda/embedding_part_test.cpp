// runs: threads
// Embeddings with a part of the weight's rows on cuda.

#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/embedding_part_testing.h"

namespace spool::testing {
namespace {

class CudaEmbeddingPart : public OnCuda {};

TEST_F(CudaEmbeddingPart, MatchesTheCpu) {
  for (EmbeddingInParts c : embeddings_in_parts) {
    for (const DType t : cuda_types) {
      c.type = t;
      const auto parts = [&](Numbers Embedded::*result) {
        return [=](Stream& stream) {
          Numbers all;
          for (const Embedded& part : embedded_parts(EmbeddingSample(c, stream), stream)) {
            const Numbers& of_part = part.*result;
            all.insert(all.end(), of_part.begin(), of_part.end());
          }
          return all;
        };
      };
      expect_as_on_cpu(parts(&Embedded::plain), 1e-15);
      expect_as_on_cpu(parts(&Embedded::placed), 1e-15);
      expect_as_on_cpu(parts(&Embedded::dweight), tolerance(t));
      expect_as_on_cpu(parts(&Embedded::dpositions), tolerance(t));
    }
  }
}

// The host does not read tokens: a wrong one shows in its row of the result, and nowhere else.
TEST_F(CudaEmbeddingPart, AWrongTokenGivesNaNAndNoGradient) {
  for (const int32_t wrong :
       {-1, 22, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    const auto stream = cuda_stream();
    const VocabularyPart part{.first = 11, .whole = 22};
    const Tensor tokens = integers({1, 3}, {21, wrong, 10}, *stream);
    const Tensor table = normal({11, 4}, DType::f32, *stream, 1);
    const Tensor y = unset({1, 3, 4}, DType::f32, *stream);
    launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = table, .part = part}, *stream);
    const Numbers found = values(y), rows = values(table);
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_EQ(found[c], rows[40 + c]);
      EXPECT_TRUE(std::isnan(found[4 + c]));
      EXPECT_EQ(found[8 + c], 0);
    }
    launch(Fill{.out = y, .value = 1}, *stream);
    launch(
        EmbeddingBackward{
            .dweight = table, .dpositions = {}, .dy = y, .tokens = tokens, .part = part},
        *stream);
    Numbers wanted(44, 0);
    for (size_t c = 0; c < 4; ++c) wanted[40 + c] = 1;
    EXPECT_EQ(values(table), wanted);
  }
}

}  // namespace
}  // namespace spool::testing
