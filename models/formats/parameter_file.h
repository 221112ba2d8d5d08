// Public: one of the headers of docs/public-headers.md.
#pragma once

// Saves and loads a model's parameters as a safetensors file, each under its name; and sets one.

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "spool/autograd/parameters.h"

namespace spool {

// Writes all parameters, in their own types, and the metadata.  Waits for the device.
void save_parameters(const std::string& file, const Parameters&,
                     const std::map<std::string, std::string>& metadata = {});
// Sets all parameters, converting from other floating types.  Throws, before any is changed, if the
// file lacks one, has one of another shape, or has a tensor that is not a parameter.
void load_parameters(const std::string& file, const Parameters&);
// Sets a parameter to these elements of its own type, all that Parameter::whole() has: a rank that
// has a part of it keeps that.
void write_whole(const Parameter&, std::span<const std::byte> elements);

}  // namespace spool
