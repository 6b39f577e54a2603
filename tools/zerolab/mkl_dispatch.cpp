// Lets the MKL inside LibTorch choose its kernels by what the processor can do, not by who made it.
//
// MKL asks its own function of this name whether the processor is Intel's, and if not falls back to
// older kernels (AVX2 on an AVX-512 processor). The definition in the executable comes first when
// LibTorch is loaded. MKL still looks at the processor's features before it uses an instruction.
// Nothing changes on Intel's processors. Left out with -DZEROLAB_MKL_BY_FEATURES=OFF;
// core/README.md has the figures.
//
// Ranks: the same on all, as long as all are of one kind of machine: sums of another kernel round
// differently.

extern "C" __attribute__((visibility("default"), used)) int mkl_serv_intel_cpu_true() {
  return 1;
}
