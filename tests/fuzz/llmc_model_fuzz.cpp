#include "fuzz.h"
#include "spool/models/families/llmc_model.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const LlmcModelReader file(path);
    std::byte some[2];
    for (const StoredTensor& t : file.tensors()) file.read(t, t.spec.nbytes() - 2, some);
  });
  return 0;
}
