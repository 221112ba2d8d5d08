#include "fuzz.h"
#include "spool/models/formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const SafetensorsReader file(path);
    std::byte some[16];
    for (const StoredTensor& t : file.tensors()) {
      file.read(t, 0, std::span(some).first(std::min<uint64_t>(16, t.spec.nbytes())));
    }
  });
  return 0;
}
