#include "spool/models/formats/parameter_file.h"

#include <algorithm>

#include "spool/models/formats/named_parameters.h"

namespace spool {

void save_parameters(const std::string& file, const Parameters& parameters,
                     const std::map<std::string, std::string>& metadata) {
  save_tensors(file, named_tensors(parameters), metadata);
}

void write_whole(const Parameter& p, std::span<const std::byte> elements) {
  check(elements.size() == p.whole().nbytes(), "write_whole: ", elements.size(), " bytes for ",
        p.name, ", ", p.whole(), ", which has ", p.whole().nbytes());
  contents_of(p).write(0, elements.size(),
                       [&](std::span<std::byte> to) { std::ranges::copy(elements, to.begin()); });
}

void load_parameters(const std::string& file, const Parameters& parameters) {
  load_tensors(SafetensorsReader(file), named_tensors(parameters));
}

}  // namespace spool
