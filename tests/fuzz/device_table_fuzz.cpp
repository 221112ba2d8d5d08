#include <cstdlib>

#include "fuzz.h"
#include "spool/planner/machines/device_table.h"
#include "spool/planner/machines/machine_text.h"
#include "spool/runtime/files/file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_in_folder("table.json", {data, size});
  fuzz::read([&] {
    const DeviceTable table = load_table_of_any_device(path);
    const auto again = path.string() + ".again";
    save_table(again, table);
    const std::string text = read_text_file(again, size_t{1} << 25);
    save_table(again, load_table_of_any_device(again));
    if (read_text_file(again, size_t{1} << 25) != text) std::abort();
  });
  fuzz::read([&] {
    const std::string text(reinterpret_cast<const char*>(data), size);
    if (is_machine_file(text)) return;
    const Machine machine = machine_from_text(text).machine;
    if (!(machine.seconds({.flops = 1e12, .bytes = 1e9}) > 0)) std::abort();
  });
  return 0;
}
