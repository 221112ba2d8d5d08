// Public: one of the headers of docs/public-headers.md.
#pragma once

// Takes the gradients of parameters as soon as a tape's backward has completed them.

namespace spool {

struct Parameter;

class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual void begin_backward() = 0;
  // Enqueued backward has completed this gradient, which may be absent; the sink may free it.
  virtual void is_final(Parameter&) = 0;
  virtual void end_backward() = 0;
};

}  // namespace spool
