#pragma once

// Keeps objects alive until the work that was enqueued before them on a stream is done.

#include <memory>
#include <utility>
#include <vector>

#include "spool/runtime/cuda/handles.cuh"

namespace spool::cuda {

class Finishing {
 public:
  // If the device has failed it is destroyed at once.  Asks for no event, as a capture forbids it.
  void add(cudaStream_t stream, std::shared_ptr<void> object) {
    EventHandle event;
    const bool recorded =
        cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming) == cudaSuccess &&
        cudaEventRecord(event.get(), stream) == cudaSuccess;
    if (!recorded) (void)cudaStreamSynchronize(stream);
    if (recorded) objects_.push_back({std::move(event), std::move(object)});
  }
  // Keeps an object until destroy_all(): a graph that is being captured may read it at each replay.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

  // Destroys the objects whose work is done.
  void destroy_done() {
    std::vector<Object> done;
    for (size_t i = 0; i < objects_.size();) {
      if (is_done(objects_[i].event)) {
        done.push_back(std::move(objects_[i]));
        objects_[i] = std::move(objects_.back());
        objects_.pop_back();
      } else {
        ++i;
      }
    }
  }
  // Destroys all objects; all work must be done.
  void destroy_all() {
    const auto objects = std::exchange(objects_, {});
    const auto kept = std::exchange(kept_, {});
  }

 private:
  struct Object {
    EventHandle event;
    std::shared_ptr<void> object;
  };
  static bool is_done(const EventHandle& event) {
    if (cudaEventQuery(event.get()) != cudaErrorNotReady) return true;
    (void)cudaGetLastError();  // or the next launch would report it
    return false;
  }

  std::vector<Object> objects_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace spool::cuda
