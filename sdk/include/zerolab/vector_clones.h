#pragma once
// Marks a function with a plain loop: it is compiled once for each width of vectors, and the
// widest that the processor has is taken at load.
//
//   ZEROLAB_VECTOR_CLONES void halve(float* x, int64_t n) {
//     for (int64_t i = 0; i < n; ++i) x[i] *= 0.5F;
//   }
//
// All of them give the same bits under -ffp-contract=off; otherwise the wide ones would fuse
// multiplications with additions. (zerolab_add_plugin compiles optimizers so, and with
// -fno-math-errno, without which a root keeps a loop from becoming one of vectors.)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define ZEROLAB_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ZEROLAB_VECTOR_CLONES
#endif
