// A stand-in for cuBLASLt: it can be opened and closed, and supports nothing.
#include "fakecuda.h"

#include <stdlib.h>

enum { NOT_SUPPORTED = 15 };
#undef SAY
#define SAY if (said(__func__)) return NOT_SUPPORTED

int cublasLtCreate(void **h) { SAY; *h = calloc(1, 8); return 0; }
int cublasLtDestroy(void *h) { SAY; free(h); return 0; }

#define NONE(name) int name(void) { SAY; return NOT_SUPPORTED; }
NONE(cublasLtMatmul) NONE(cublasLtMatmulAlgoConfigSetAttribute) NONE(cublasLtMatmulAlgoGetHeuristic) NONE(cublasLtMatmulAlgoInit)
NONE(cublasLtMatmulDescCreate) NONE(cublasLtMatmulDescDestroy) NONE(cublasLtMatmulDescSetAttribute)
NONE(cublasLtMatmulPreferenceCreate) NONE(cublasLtMatmulPreferenceDestroy) NONE(cublasLtMatmulPreferenceSetAttribute)
NONE(cublasLtMatrixLayoutCreate) NONE(cublasLtMatrixLayoutDestroy) NONE(cublasLtMatrixLayoutSetAttribute)
NONE(cublasLtMatrixTransform) NONE(cublasLtMatrixTransformDescCreate) NONE(cublasLtMatrixTransformDescDestroy)
