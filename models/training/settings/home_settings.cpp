#include "spool/models/training/settings/home_settings.h"

#include "spool/runtime/units.h"

namespace spool {

std::string parameters_text(const RunOptions& o) {
  const std::optional<size_t>& bytes = o.policy.parameters_on_device;
  return !bytes ? "device" : *bytes == 0 ? "host" : std::to_string(*bytes);
}
std::optional<size_t> parameters_on_device(const std::string& text) {
  if (text == "device") return {};
  try {
    return text == "host" ? 0 : parse_bytes(text);
  } catch (const Error&) {
    fail_setting(ErrorKind::invalid, {"parameters"}, "the place of parameters, '", text,
                 "', is neither device, nor host, nor an amount of memory such as 6GiB");
  }
}

void read_parameters(RunOptions& o, const std::string& text) {
  o.policy.parameters_on_device = parameters_on_device(text);
}

void settle_homes(RunOptions& o) {
  Policy& policy = o.policy;
  const bool has_state_there = policy.parameters_on_device && !o.training.model.lora();
  if (has_state_there && !o.given.contains("optimizer-state")) {
    policy.optimizer_state = OptimizerState::streamed;
  }
  check_setting(!has_state_there || policy.optimizer_state == OptimizerState::streamed,
                {"parameters", "optimizer-state"},
                "parameters on the host are updated through the device, so their state is "
                "streamed, not ",
                name(policy.optimizer_state), "; leave the place of the state out");
  check_setting(policy.update == UpdateTime::end || policy.optimizer_state != OptimizerState::cpu,
                {"update", "optimizer-state"},
                "an update in backward is done by the device, and with optimizer state cpu the "
                "host updates parameters; leave out one of the two");
  const double clip = o.training.optimizer.clip;
  check_setting(policy.update == UpdateTime::end || clip == 0, {"update", "clip"},
                "an update in backward changes each parameter before the norm of all gradients is "
                "known, by which a clip of ",
                clip, " cuts them; give a clip of 0, or update at the end");
}

}  // namespace spool
