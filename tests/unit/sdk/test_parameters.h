#pragma once
// A small set of awkward parameters: decayed and not, frozen, tiny, odd-sized, zero-size, in three
// units.

#include "zerolab/parameters.h"

inline void declare_awkward(zerolab::Parameters& p) {
  using zerolab::Init;
  p.declare("embedding", {7, 5}, Init::normal(0, 1));
  p.declare("final.weight", {5}, Init::ones());
  p.begin_unit("block.0");
  p.declare("block.0.matrix", {5, 33}, Init::uniform(-1, 1));
  p.declare("block.0.bias", {33}, Init::zeros());
  p.declare("block.0.frozen", {4, 4}, Init::normal(0, 1), {.requires_grad = false});
  p.declare("block.0.empty", {0, 3}, Init::zeros());
  p.begin_unit("block.1");
  p.declare("block.1.scalar", {1}, Init::ones());
  p.declare("block.1.decayed_vector", {17}, Init::ones(),
            {.decay = zerolab::ParameterTraits::Decay::kYes});
  p.end_unit();
  p.alias("embedding", "head");
}
