package ort

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Patterns of the folders that hold CUDA's libraries outside the loader's own path: beside the driver, where the
// toolkit installs itself, and inside Python packages (nvidia-cublas and others put them into nvidia/*/lib of
// site-packages).
var (
	driverFolders  = []string{"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"}
	toolkitFolders = []string{"/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib", "/opt/conda/lib"}
	sitePackages   = []string{
		"/usr/lib/python3*/*-packages", "/usr/local/lib/python3*/*-packages", "/opt/*/lib/python3*/site-packages",
		"/opt/*/.venv/lib/python3*/site-packages", "/opt/*/venv/lib/python3*/site-packages", "/opt/conda/envs/*/lib/python3*/site-packages",
		"/root/.local/lib/python3*/site-packages", "/home/*/.local/lib/python3*/site-packages",
	}
	insidePackages = []string{"nvidia/*/lib", "nvidia/*/lib/x86_64", "tensorrt_libs"}
)

// searchRoot is the file system and environment that is searched. Tests use their own.
type searchRoot struct {
	root string // prefix of every absolute pattern
	env  func(string) string
}

func thisHost() searchRoot { return searchRoot{env: os.Getenv} }

// folders returns every existing folder that may hold CUDA's libraries, in the order in which they are searched:
// those that the environment names, those beside the driver, those in Python packages, and the toolkit's.
func (h searchRoot) folders() []string {
	var out []string
	add := func(pattern string) {
		matches, _ := filepath.Glob(pattern) // the patterns are well formed, so there is no error
		for _, f := range matches {
			if st, err := os.Stat(f); err == nil && st.IsDir() && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}

	// Take the environment's own folders, and note where its Python packages are.
	var sites []string
	if v := h.env("VIRTUAL_ENV"); v != "" {
		sites = append(sites, filepath.Join(v, "lib/python3*/site-packages"))
	}
	if v := h.env("CONDA_PREFIX"); v != "" {
		add(filepath.Join(v, "lib"))
		sites = append(sites, filepath.Join(v, "lib/python3*/site-packages"))
	}
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if dir := h.env(v); dir != "" {
			add(filepath.Join(dir, "lib64"))
		}
	}
	// The packages of each Python on PATH lie beside its bin folder.
	for _, dir := range filepath.SplitList(h.env("PATH")) {
		if _, err := os.Stat(filepath.Join(h.root, dir, "python3")); err == nil {
			sites = append(sites, filepath.Join(h.root, filepath.Dir(filepath.Clean(dir)), "lib/python3*/*-packages"))
		}
	}
	for _, s := range sitePackages {
		sites = append(sites, h.root+s)
	}

	// Add the folders in the order of search.
	for _, d := range driverFolders {
		add(h.root + d)
	}
	for _, s := range sites {
		for _, inside := range insidePackages {
			add(filepath.Join(s, inside))
		}
	}
	for _, d := range toolkitFolders {
		add(h.root + d)
	}
	return out
}

// folderOf returns the first of the folders that holds a library of this name, or "" if none does.
func folderOf(name string, folders []string) string {
	for _, f := range folders {
		if st, err := os.Stat(filepath.Join(f, name)); err == nil && !st.IsDir() {
			return f
		}
	}
	return ""
}

// LibraryPath returns the folders of those of CUDA's libraries that the loader would not find, for the beginning
// of LD_LIBRARY_PATH. The loader reads that variable when a program starts, so a program has to start itself again
// with it. Without the CUDA provider beside ONNX Runtime, or if nothing is missing, the list is empty.
func LibraryPath() []string {
	lib, err := FindLibrary()
	if err != nil {
		return nil
	}
	if resolved, err := filepath.EvalSymlinks(lib); err == nil {
		lib = resolved
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(lib), "libonnxruntime_providers_cuda.so")); err != nil {
		return nil
	}
	return libraryPath(thisHost(), tryLibrary, os.TempDir())
}

// libraryPath returns the folders that LibraryPath returns. h is the file system to search, try opens a library by name
// and returns why that fails, and scratch is a folder for a link.
func libraryPath(h searchRoot, try func(string) error, scratch string) []string {
	// Find the folder of every library that does not open by its name alone.
	var out []string
	folders := h.folders()
	for _, library := range slices.Concat(cudaNeeds, cudaOpens, tensorrtNeeds) {
		name := library[0]
		if try(name) == nil {
			continue
		}
		if f := folderOf(name, folders); f != "" && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}

	// The provider asks for cuDNN also by its name without a version, which Python packages do not have. So make a link
	// of that name, in a folder of this user's own.
	const unversioned, versioned = "libcudnn.so", "libcudnn.so.9"
	if try(unversioned) != nil && folderOf(unversioned, folders) == "" {
		if f := folderOf(versioned, folders); f != "" {
			dir := filepath.Join(scratch, fmt.Sprintf("inferplan-cuda-%d", os.Getuid()))
			link := filepath.Join(dir, unversioned)
			if err := os.MkdirAll(dir, 0o700); err == nil {
				if oldPath, _ := os.Readlink(link); oldPath != filepath.Join(f, versioned) {
					_ = os.Remove(link)
					err = os.Symlink(filepath.Join(f, versioned), link)
				}
				if err == nil && ours(dir) {
					out = append(out, dir)
				}
			}
		}
	}

	// Leave out what the loader searches already.
	oldFolders := filepath.SplitList(h.env("LD_LIBRARY_PATH"))
	return slices.DeleteFunc(out, func(f string) bool { return slices.Contains(oldFolders, f) })
}

// JoinPath returns a value for LD_LIBRARY_PATH with the given folders before those of oldPath, its value so far.
func JoinPath(folders []string, oldPath string) string {
	if oldPath != "" {
		folders = append(slices.Clone(folders), oldPath)
	}
	return strings.Join(folders, string(filepath.ListSeparator))
}
