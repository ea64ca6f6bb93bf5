// Command trimfatbin keeps the GPU kernels of some architectures in a library built with nvcc and overwrites the others
// with zeros, in place: offsets and size stay, so the library loads as before, but it compresses to a fraction.
//
//	trimfatbin -keep 90 libonnxruntime_providers_cuda.so
//	trimfatbin -keep 90 -drop 'flash|llm' libonnxruntime_providers_cuda.so   # and of those, kernels nobody here calls
//	trimfatbin libonnxruntime_providers_cuda.so             # only lists what is inside
//
// Kernels lie in the ELF section .nv_fatbin as a row of containers, each with an entry per architecture. PTX entries
// (text that the driver can compile for newer architectures) stay. A program that runs on a GPU whose kernels were taken
// out fails with "no kernel image is available".
package main
