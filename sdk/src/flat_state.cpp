#include "zerolab/flat_state.h"

#include <memory>

namespace zerolab {
namespace {

FlatParameters allocated(const ShardingContext& context, const FlatLayout& layout) {
  FlatParameters parameters;
  parameters.allocate(context.parameters, layout, context.seed);
  return parameters;
}

}  // namespace

void BucketOptions::describe(Describe<BucketOptions>& d) {
  d.field("reduce_bucket_size", &BucketOptions::reduce_bucket_size,
          "gradients reduced in one collective")
      .unit("elements")
      .size()
      .at_least(1)
      .keeps_results();
}

FlatState::FlatState(const ShardingContext& context, const BucketOptions& options,
                     bool keep_full_gradients, Ownership ownership)
    : declared_(context.parameters),
      world_(context.world),
      layout_(context.parameters, context.world.size(), options.reduce_bucket_size),
      parameters_(allocated(context, layout_)),
      reducer_(context.parameters, layout_, context.world,
               {.keep_full = keep_full_gradients, .reduce_every = context.reduce_every}) {
  constexpr int kEverything = -1;
  const int owner = ownership == Ownership::kSharded ? world_.rank() : kEverything;
  optimizer_.allocate(layout_, owner, parameters_.flat(), context.optimizer);
}

void FlatState::update_owned(const UpdateStep& step) {
  optimizer_.update([this](const FlatRange& range) { return reducer_.gradients(range); }, step);
}

void FlatState::publish_gradients() {
  std::vector<std::unique_ptr<Work>> gathers;
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    gathers.push_back(world_.all_gather(reducer_.full_bucket(b), reducer_.slice(b)));
  }
  for (const auto& gather : gathers) gather->wait();
}

HeldBytes FlatState::held_bytes() const {
  return {parameters_.bytes(), reducer_.gradient_bytes(), optimizer_.bytes(),
          reducer_.bucket_bytes()};
}

}  // namespace zerolab
