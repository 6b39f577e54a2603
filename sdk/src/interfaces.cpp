// The interfaces' destructors: out of line, so that their vtables live in the SDK alone.

#include "zerolab/data.h"
#include "zerolab/model.h"
#include "zerolab/optimizer.h"
#include "zerolab/precision.h"
#include "zerolab/scheduler.h"
#include "zerolab/sharding.h"

namespace zerolab {

Model::~Model() = default;
Data::~Data() = default;
Optimizer::~Optimizer() = default;
Sharding::~Sharding() = default;
Precision::~Precision() = default;
Scheduler::~Scheduler() = default;

}  // namespace zerolab
