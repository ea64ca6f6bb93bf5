# What set-up fetches, and the hashes it must have. Sourced by the set-up scripts.

HIGHS_VERSION=1.10.0
HIGHS_SOURCE=highs=1.10.0+ds-1                      # Debian source package, suite trixie (upstream tree less bundled binaries)
HIGHS_TARBALL=highs_1.10.0+ds.orig.tar.xz
HIGHS_SHA256=5964fc1ca4f0b23dd45987bbed1838f2e570e96aa624635ac63d277152b6c94a

ORT_VERSION=1.29.0                                  # npm onnxruntime-node; its sha512 stands in ort/package-lock.json
ORT_LIB_SHA256=89688f5cf51c7e31befbb7b9101bc027799009b18d1baa9a5b1146a72e69538d
ORT_HEADERS_MODULE=github.com/yalue/onnxruntime_go@v1.27.0
ORT_C_API_SHA256=9ed0d7054a4e74249467365b25b415d36f51a44a6349e2a994a1812e4723d1e2
ORT_EP_C_API_SHA256=e94ac3490697bdb107844fa9d403952ee7136134132a057eae5c1207b57ce352

CUDA_PACKAGE=com.github.asus4.onnxruntime.linux-x64-gpu@0.4.9
CUDA_SHA512=168a4884d13f360fafd97eb9c1573d7253c2042be1bc0e771f1a3653429fe5f19d56c0bb88203e999d0a2d6820710023ed3219ea9362751e000b5d20ef85e8eb

MODELS_DEB=libonnx-testdata                         # Debian package, suite trixie; the files' hashes stand in models/SHA256SUMS
