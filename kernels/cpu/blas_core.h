/* Which kernels OpenBLAS uses. It knows processors by a list; one that is newer than the library
 * gets the kernels of 2004, ten times slower than what the processor can do. The choice is made
 * when the library is loaded, from the environment or the list, and can't be changed afterwards. */
#ifndef TANDEM_KERNELS_CPU_BLAS_CORE_H
#define TANDEM_KERNELS_CPU_BLAS_CORE_H

/* First thing in main() of a program that computes: where OpenBLAS has fallen back although the
 * processor has AVX2, sets OPENBLAS_CORETYPE and starts the program anew (same process, same open
 * descriptors). Else, and where the user has set the variable, returns. */
void blas_core_ensure(char *const argv[]);

/* The name to ask for: what OpenBLAS should use here; NULL: its own choice is fine. */
const char *blas_core_wanted(void);

#endif
