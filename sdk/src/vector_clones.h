#pragma once
// ZEROLAB_VECTOR_CLONES for exact_norm.cpp.
#include "zerolab/vector_clones.h"
