#include "spool/models/formats/parameter_file.h"

#include "spool/models/formats/named_parameters.h"

namespace spool {

void save_parameters(const std::string& file, const Parameters& parameters,
                     const std::map<std::string, std::string>& metadata) {
  save_tensors(file, named_tensors(parameters), metadata);
}

void load_parameters(const std::string& file, const Parameters& parameters) {
  load_tensors(SafetensorsReader(file), named_tensors(parameters));
}

}  // namespace spool
