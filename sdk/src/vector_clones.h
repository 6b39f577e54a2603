#pragma once
// Marks a loop that is compiled once for each width of vectors, the widest of which the processor
// has being taken at load. Not installed.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define ZEROLAB_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ZEROLAB_VECTOR_CLONES
#endif
