package ort

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"inferplan/engine"
)

// LibraryEnv names the variable that points at the library.
const LibraryEnv = "INFERPLAN_ORT_LIB"

const libraryName = "libonnxruntime.so.1"

// FindLibrary returns the path of ONNX Runtime's library: INFERPLAN_ORT_LIB, beside the executable, in lib/ beside
// it, or where `make setup` puts it in a source tree above the executable or the working directory.
func FindLibrary() (string, error) {
	if p := os.Getenv(LibraryEnv); p != "" {
		if st, err := os.Stat(p); err != nil || st.IsDir() {
			return "", &engine.MissingError{Target: "ONNX Runtime", Missing: []string{p + " (named by " + LibraryEnv + ")"},
				Hint: "let " + LibraryEnv + " name the file " + libraryName + ", or unset it and type `make setup`", Kind: engine.ErrNoLibrary}
		}
		return p, nil
	}

	// try reports whether a file exists, and remembers the path for the error.
	var triedPaths []string
	try := func(p string) bool {
		for _, t := range triedPaths {
			if t == p {
				return false
			}
		}
		triedPaths = append(triedPaths, p)
		st, err := os.Stat(p)
		return err == nil && !st.IsDir()
	}

	// Look beside the executable.
	var starts []string
	if exe, err := os.Executable(); err == nil {
		if resolved, err := filepath.EvalSymlinks(exe); err == nil {
			exe = resolved
		}
		dir := filepath.Dir(exe)
		for _, p := range []string{filepath.Join(dir, libraryName), filepath.Join(dir, "lib", libraryName)} {
			if try(p) {
				return p, nil
			}
		}
		starts = append(starts, dir)
	}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}

	// Look in all folders above the executable and the working directory.
	for _, dir := range starts {
		for {
			// Search only a source tree of this project, so that others' files are not opened.
			if _, err := os.Stat(filepath.Join(dir, "third_party", "ort")); err == nil {
				if p := filepath.Join(dir, "third_party", "ort", "lib", libraryName); try(p) {
					return p, nil
				}
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", &engine.MissingError{Target: "ONNX Runtime", Missing: []string{libraryName + " (looked for " + strings.Join(triedPaths, ", ") + ")"},
		Hint: "type `make setup` in the source tree, or set " + LibraryEnv + " to the file", Kind: engine.ErrNoLibrary}
}

// gpuTail matches the memory size at the end of a GPU's name.
var gpuTail = regexp.MustCompile(`[ -]*\d+ ?GB.*$`)

// kindOfGPU returns the name of a kind of GPU in plans, from the GPU's own name: "H100-PCIe" for "NVIDIA H100 PCIe
// 80GB", without vendor and memory size.
func kindOfGPU(name string) string {
	for _, vendor := range []string{"NVIDIA ", "Tesla ", "Quadro "} {
		name = strings.TrimPrefix(name, vendor)
	}
	name = gpuTail.ReplaceAllString(name, "")
	return strings.ReplaceAll(strings.TrimSpace(name), " ", "-")
}

// architecture writes a compute capability (the version of a GPU's instructions) as text: "9.0". It returns "" if it
// is unknown.
func architecture(major, minor int) string {
	if major == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

// multiprocessors computes the number of multiprocessors from that of the cores, which NVML reports: each has 64
// or 128, depending on the architecture (CUDA C++ Programming Guide, "Compute Capabilities").
func multiprocessors(cores, major, minor int) int {
	coresEach := 128
	switch {
	case cores == 0 || major == 0:
		return 0
	case major == 7, major == 6 && minor == 0, major == 8 && minor == 0:
		coresEach = 64
	}
	return cores / coresEach
}

// The libraries that ONNX Runtime's CUDA provider needs, by the names that
// its 1.29 build asks for.
var cudaNeeds = [][2]string{
	{"libcuda.so.1", "the GPU driver"},
	{"libcudart.so.13", "CUDA runtime"},
	{"libcublas.so.13", "CUDA cuBLAS"},
	{"libcublasLt.so.13", "CUDA cuBLAS"},
	{"libcurand.so.10", "CUDA cuRAND"},
	{"libcufft.so.12", "CUDA cuFFT"},
	{"libcudnn.so.9", "cuDNN 9, for convolutions"},
}

// cudaOpens are optional libraries that are opened by name: by cuDNN and the provider when they compile kernels at
// run time, and by this package to list GPUs.
var cudaOpens = [][2]string{
	{"libnvidia-ml.so.1", "NVML, for power and clocks"},
	{"libnvrtc.so.13", "run-time compiler, for some of cuDNN's convolutions"},
}

var tensorrtNeeds = [][2]string{
	{"libnvinfer.so.10", "TensorRT 10"},
	{"libnvonnxparser.so.10", "TensorRT 10's ONNX parser"},
}

// Requirement is one library that a kind of device needs.
type Requirement struct {
	Name    string
	Purpose string
	Err     error // nil if the library can be opened
}

// Hint returns, as text for the user, how to install the missing library.
func (r Requirement) Hint() string {
	switch base := filepath.Base(r.Name); {
	case strings.HasPrefix(base, "libonnxruntime"):
		return "make setup CUDA=1, or lay the file beside libonnxruntime.so.1"
	case base == "libcuda.so.1":
		return "install NVIDIA's driver; in a container, start it with the GPU"
	case strings.HasPrefix(base, "libcudnn"):
		return "pip install nvidia-cudnn-cu13, or cuDNN 9 from NVIDIA's packages"
	default:
		return "pip install nvidia-cublas nvidia-cuda-runtime nvidia-curand nvidia-cufft nvidia-cuda-nvrtc, or the CUDA 13 toolkit"
	}
}

// missingError returns an error that lists the requirements that are not met, or nil if all are. wanted names what
// needs them, hint says what to install.
func missingError(wanted string, reqs []Requirement, hint string, kind error) error {
	var list []string
	for _, r := range reqs {
		if r.Err != nil {
			list = append(list, fmt.Sprintf("%s (%s)", r.Name, r.Purpose))
		}
	}
	if list == nil {
		return nil
	}
	return &engine.MissingError{Target: wanted, Missing: list, Hint: hint, Kind: kind}
}
