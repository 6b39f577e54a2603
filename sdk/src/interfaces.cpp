// The interfaces' destructors: out of line, so that their vtables live in the SDK alone.

#include "zerolab/data.h"
#include "zerolab/error.h"
#include "zerolab/model.h"
#include "zerolab/optimizer.h"
#include "zerolab/precision.h"
#include "zerolab/scheduler.h"
#include "zerolab/sharding.h"

namespace zerolab {

Model::~Model() = default;

at::Tensor Model::next_logits(const at::Tensor&, Units&, KeyValueCache&) {
  throw PluginError("the model keeps no cache: has_cache() says so");
}

Data::~Data() = default;

std::vector<int64_t> Data::encode(std::string_view) const {
  throw ConfigError(
      "the data has no words for text: its tokens are numbers alone; take data that is made of "
      "text.");
}

void Data::validate_on(const std::string&) {
  throw ConfigError(
      "the data comes from its options alone and cannot read another file; leave the file out, or "
      "train on data that is read from files.");
}

Optimizer::~Optimizer() = default;
Sharding::~Sharding() = default;
Precision::~Precision() = default;
Scheduler::~Scheduler() = default;

}  // namespace zerolab
