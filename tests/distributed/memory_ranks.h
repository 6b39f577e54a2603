#pragma once
// Ranks that are threads of this process and reach each other through memory: the same collectives,
// sums and errors as over sockets (Communicator makes them), without a system call for each message.

#include <functional>

#include "zerolab/communicator.h"

/// As zerolab::run_on_threads(). Errors: what a rank throws first.
void run_in_memory(int num_ranks, const std::function<void(zerolab::Communicator& world)>& body);
