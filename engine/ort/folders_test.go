package ort

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A machine whose CUDA comes as Python packages in a virtual environment, its
// driver in a mounted folder.
func TestLibraryPath(t *testing.T) {
	root := t.TempDir()
	place := func(files ...string) {
		for _, f := range files {
			p := filepath.Join(root, f)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const site = "opt/torch/.venv/lib/python3.12/site-packages"
	place(
		"opt/torch/.venv/bin/python3", "usr/local/nvidia/lib64/libcuda.so.1",
		site+"/nvidia/cu13/lib/libcudart.so.13", site+"/nvidia/cu13/lib/libcublas.so.13", site+"/nvidia/cu13/lib/libcublasLt.so.13",
		site+"/nvidia/cu13/lib/libcurand.so.10", site+"/nvidia/cu13/lib/libcufft.so.12", site+"/nvidia/cu13/lib/libnvrtc.so.13",
		site+"/nvidia/cudnn/lib/libcudnn.so.9", "usr/local/cuda/lib64/libcudart.so.13",
	)
	var libraryPathEnv string
	h := searchRoot{root: root, env: func(name string) string {
		switch name {
		case "PATH":
			return "/opt/torch/.venv/bin:/usr/bin"
		case "LD_LIBRARY_PATH":
			return libraryPathEnv
		}
		return ""
	}}
	scratch := t.TempDir()
	nothing := func(string) error { return errors.New("cannot open shared object file") }
	got := libraryPath(h, nothing, scratch)
	want := []string{
		filepath.Join(root, "usr/local/nvidia/lib64"), filepath.Join(root, site, "nvidia/cu13/lib"), filepath.Join(root, site, "nvidia/cudnn/lib"),
	}
	if len(got) != 4 || !slices.Equal(got[:3], want) {
		t.Fatalf("found %q, want %q and a folder of links", got, want)
	}
	// cuDNN under its plain name.
	if to, err := os.Readlink(filepath.Join(got[3], "libcudnn.so")); err != nil || to != filepath.Join(root, site, "nvidia/cudnn/lib/libcudnn.so.9") {
		t.Errorf("libcudnn.so points at %q, %v", to, err)
	}
	if again := libraryPath(h, nothing, scratch); !slices.Equal(again, got) {
		t.Errorf("the second search found %q", again)
	}
	// What is on the path already is not added again.
	libraryPathEnv = strings.Join(got[:2], ":")
	if again := libraryPath(h, nothing, scratch); !slices.Equal(again, got[2:]) {
		t.Errorf("with LD_LIBRARY_PATH set: %q", again)
	}
	// What the loader finds by itself needs no folder.
	driverOnly := func(name string) error {
		if name == "libcuda.so.1" {
			return nothing(name)
		}
		return nil
	}
	libraryPathEnv = ""
	if again := libraryPath(h, driverOnly, scratch); !slices.Equal(again, want[:1]) {
		t.Errorf("with everything but the driver: %q", again)
	}
	// A folder of links that others may write to is not taken from.
	if err := os.Chmod(got[3], 0o777); err != nil {
		t.Fatal(err)
	}
	if again := libraryPath(h, nothing, scratch); slices.Contains(again, got[3]) {
		t.Error("a folder that everybody writes to is on the path")
	}
}

func TestJoinPath(t *testing.T) {
	if got := JoinPath([]string{"/a", "/b"}, "/c:/d"); got != "/a:/b:/c:/d" {
		t.Error(got)
	}
	if got := JoinPath([]string{"/a"}, ""); got != "/a" {
		t.Error(got)
	}
}

func TestMultiprocessorsFollowArchitecture(t *testing.T) {
	for _, c := range []struct {
		name                string
		cores, major, minor int
		want                int
	}{{"H100", 16896, 9, 0, 132}, {"A100", 6912, 8, 0, 108}, {"L4", 7424, 8, 9, 58}, {"T4", 2560, 7, 5, 40}, {"P4", 2560, 6, 1, 20}, {"P100", 3584, 6, 0, 56}, {"not told", 0, 9, 0, 0}} {
		if got := multiprocessors(c.cores, c.major, c.minor); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
