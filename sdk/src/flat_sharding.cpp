#include "zerolab/flat_sharding.h"

#include <utility>

#include <c10/core/ScalarType.h>

#include "zerolab/error.h"
#include "zerolab/log.h"

namespace zerolab {
namespace {

constexpr int kEverything = -1;  // as owner in FlatLayout::ranges

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace

void FlatOptions::check(Problems& problems) const {
  if (wire_error_feedback && wire_dtype == "fp32") {
    problems.add(
        "wire_error_feedback",
        "has nothing to feed back with wire_dtype = \"fp32\", which loses nothing; leave it "
        "out or choose \"bf16\" or \"int8\"");
  }
}

FlatSharding::FlatSharding(ZeroStage stage, const ShardedParameterOptions& options)
    : stage_(stage), options_(options), wire_(parse_wire_dtype(options.wire_dtype)) {}

FlatSharding::~FlatSharding() = default;

void FlatSharding::check_ranks(int num_ranks) const {
  if (shard_size(num_ranks) > 1 || num_ranks == 1 || !options_.wire_error_feedback) return;
  throw ConfigError(
      "key 'sharding.wire_error_feedback': groups of one rank have no owner to send gradients to, "
      "so there is nothing to feed back; leave it out or choose a larger shard_size.");
}

/// Alone, a shard is the whole: nothing would be gathered or freed.
bool FlatSharding::parameters_sharded(int owners) const {
  return stage_ == ZeroStage::kParameters && owners > 1;
}

LayoutRules FlatSharding::layout_rules(int num_ranks) const {
  LayoutRules rules;
  rules.num_ranks = shard_size(num_ranks);
  rules.bucket_elements = options_.reduce_bucket_size;
  rules.grain_ranks = num_ranks;
  rules.cut_at_units = parameters_sharded(rules.num_ranks);
  rules.region_zero_below = options_.param_persistence_threshold;
  return rules;
}

ReducerTraits FlatSharding::reducer_traits(int owners, ReduceEvery reduce_every,
                                           const PrecisionPolicy& precision) const {
  ReducerTraits traits;
  traits.keep_full = stage_ < ZeroStage::kGradients;
  traits.reduce_every = reduce_every;
  traits.overlap = options_.overlap_comm;
  traits.by_region = parameters_sharded(owners);
  traits.same_use = !options_.find_unused_parameters;
  traits.wire = wire_;
  traits.error_feedback = options_.wire_error_feedback;
  traits.dtype = precision.gradient_dtype;
  return traits;
}

GatherTraits FlatSharding::gather_traits(at::ScalarType dtype) const {
  return {wire_for(wire_, dtype), options_.allgather_bucket_size};
}

UnitGatherTraits FlatSharding::unit_traits(at::ScalarType dtype) const {
  return {wire_for(wire_, dtype), options_.overlap_comm, options_.allgather_bucket_size,
          options_.reshard_after_forward};
}

/// Owners are neighbours; ranks that own the same slices in different groups are replicas.
void FlatSharding::split_ranks(Communicator& world) {
  owners_ = &world;
  const int size = shard_size(world.size());
  if (size == world.size()) return;
  std::vector<int> group, replicas;
  const int first = world.rank() / size * size;
  for (int r = 0; r < size; ++r) group.push_back(first + r);
  for (int r = world.rank() % size; r < world.size(); r += size) replicas.push_back(r);
  group_ = world.split(group);
  replicas_ = world.split(replicas);
  owners_ = group_.get();
}

/// Blocks of int8 need float32 values, and their scales a float32 sum; what travels as it is leaves
/// nothing to feed back.
void FlatSharding::check_wire(const PrecisionPolicy& precision) const {
  if (precision.gradient_dtype == at::kFloat) return;
  if (options_.wire_error_feedback) {
    throw ConfigError(
        "key 'sharding.wire_error_feedback': precision.gradient_dtype makes 16-bit gradients, "
        "which travel as they are, so there is nothing to feed back; leave one of the two out.");
  }
  if (wire_ != WireDtype::kInt8) return;
  throw ConfigError(
      "key 'sharding.wire_dtype': \"int8\" is for float32 gradients, and precision.gradient_dtype "
      "makes them 16-bit ones, which travel as they are; leave one of the two out.");
}

/// Memory for the parameters, whole or sharded.
void FlatSharding::attach_parameters(const ShardingContext& context, int owner) {
  const at::ScalarType dtype = context.precision.parameter_dtype;
  OptimizerShard::Masters masters;
  OptimizerShard::Copies copies;
  if (parameters_sharded(owners_->size())) {
    sharded_.emplace(context.parameters, *layout_, *owners_, context.seed, unit_traits(dtype),
                     dtype);
    masters = [this](int64_t, int64_t owned_offset, int64_t length) {
      return sharded_->shard().narrow(0, owned_offset, length);
    };
    copies = [this](int64_t, int64_t owned_offset, int64_t length) {
      const at::Tensor& all = sharded_->copies();
      return all.defined() ? all.narrow(0, owned_offset, length) : all;
    };
  } else {
    whole_.emplace();
    whole_->allocate(context.parameters, *layout_, context.seed, dtype, owner);
    if (stage_ != ZeroStage::kNone) whole_->set_gather(*owners_, gather_traits(dtype));
    masters = [this](int64_t flat_offset, int64_t owned_offset, int64_t length) {
      return whole_->master(flat_offset, owned_offset, length);
    };
    copies = [this](int64_t flat_offset, int64_t, int64_t length) {
      return whole_->copy(flat_offset, length);
    };
  }
  optimizer_.allocate(*layout_, owner, std::move(masters), context.optimizer, copies);
}

void FlatSharding::attach(const ShardingContext& context) {
  check_wire(context.precision);
  split_ranks(context.world);
  declared_ = &context.parameters;
  layout_.emplace(context.parameters, layout_rules(context.world.size()));
  attach_parameters(context, stage_ == ZeroStage::kNone ? kEverything : owners_->rank());
  reducer_.emplace(context.parameters, *layout_, ReduceRoute(*owners_, replicas_.get()),
                   reducer_traits(owners_->size(), context.reduce_every, context.precision));
  if (stage_ == ZeroStage::kNone) {
    gradient_gather_.emplace(*layout_, *owners_, gather_traits(context.precision.gradient_dtype), 0,
                             layout_->buckets().size());
  }
  const bool on_cpu = context.parameters.tensor(0).is_cpu();
  if (options_.offload == "host" && on_cpu && context.world.rank() == 0) {
    log::warning(
        "offload = \"host\" changes nothing: the device is the CPU, and optimizer states are on "
        "the host already");
  }
}

void FlatSharding::update(const UpdateStep& step) {
  if (gradient_gather_) {
    gradient_gather_->run(
        reducer_->full(), [this](size_t b) { return reducer_->slice(b); }, "gradients");
  }
  optimizer_.update([this](const FlatRange& range) { return reducer_->gradients(range); }, step);
  publish();
  reducer_->release();
}

void FlatSharding::begin_pass(bool training) {
  if (!sharded_) return;
  training_ = training;
  open_runs_.assign(static_cast<size_t>(declared_->num_units()), 0);
  sharded_->begin_pass(training);
}

void FlatSharding::before_forward(int unit) {
  if (!sharded_) return;
  if (training_) ++open_runs_[static_cast<size_t>(unit)];
  sharded_->before_forward(unit);
}

void FlatSharding::after_forward(int unit) {
  if (sharded_) sharded_->after_forward(unit);
}

void FlatSharding::before_backward(int unit) {
  if (sharded_) sharded_->before_backward(unit);
}

void FlatSharding::after_backward(int unit) {
  if (!sharded_) return;
  sharded_->after_backward(unit);
  // Gradients of a unit that ran twice are there when the last of its runs is left.
  if (--open_runs_[static_cast<size_t>(unit)] > 0) return;
  reducer_->complete_region(static_cast<size_t>(unit) + 1);
}

void FlatSharding::end_pass() {
  if (sharded_) sharded_->end_pass();
}

std::vector<LocalState> FlatSharding::local_state() {
  if (!reducer_->residual().defined()) return {};
  return {{"error_feedback", reducer_->residual()}};
}

void FlatSharding::state_restored() {
  optimizer_.refresh_copies();
  publish();
}

/// What ranks have updated to those that compute with it.
void FlatSharding::publish() {
  if (sharded_) {
    sharded_->publish();
  } else if (!gradient_gather_) {
    whole_->publish(*owners_);
  }
}

HeldBytes FlatSharding::held_bytes() const {
  HeldBytes held;
  held.gradients = reducer_->gradient_bytes();
  held.optimizer = optimizer_.bytes();
  held.buckets = reducer_->bucket_bytes();
  if (gradient_gather_) held.buckets += gradient_gather_->buffer_bytes();
  if (sharded_) {
    held.parameters = sharded_->bytes();
    held.optimizer += sharded_->master_bytes();
    held.buckets += sharded_->buffer_bytes();
    held.gathered = sharded_->gathered_bytes();
  } else {
    held.parameters = whole_->bytes();
    held.optimizer += whole_->master_bytes();
    held.buckets += whole_->buffer_bytes();
  }
  return held;
}

std::optional<Footprint> FlatSharding::footprint(const FootprintRequest& request) const {
  const FlatLayout layout(request.parameters, layout_rules(request.num_ranks));
  const int owners = layout.num_ranks();
  const at::ScalarType dtype = request.precision.parameter_dtype;
  const int64_t parameter_size = size_of(dtype);
  Footprint footprint;
  GradientReducer::predict(layout, request.num_ranks / owners,
                           reducer_traits(owners, request.reduce_every, request.precision),
                           request.micro_batches, footprint);
  HeldBytes& held = footprint.held;
  const bool replicated = stage_ == ZeroStage::kNone;
  const int64_t owned = replicated ? layout.length() : layout.shard_length();
  held.optimizer += owned * 4 * request.num_states;
  bool masters = dtype != at::kFloat;
  held.parameters += frozen_length(request.parameters) * parameter_size;
  if (parameters_sharded(owners)) {
    UnitParameters::predict(layout, unit_traits(dtype), parameter_size, request.micro_batches,
                            footprint);
    held.parameters += (layout.shard_length() + layout.regions()[0].length) * parameter_size;
  } else {
    held.parameters += layout.length() * parameter_size;
    masters |= !replicated && owners > 1 && wire_ != WireDtype::kFloat32;
    const at::ScalarType moved = replicated ? request.precision.gradient_dtype : dtype;
    BucketGather::predict(layout, gather_traits(moved), 0, layout.buckets().size(), size_of(moved),
                          1, footprint);
  }
  if (masters) held.optimizer += owned * 4;
  return footprint;
}

double FlatSharding::loss_tolerance() const {
  switch (wire_) {
    case WireDtype::kFloat32:
      return 0;
    case WireDtype::kBFloat16:
      return 1e-2;
    case WireDtype::kInt8:
      return 5e-2;
  }
  return 0;
}

}  // namespace zerolab
