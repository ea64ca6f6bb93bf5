package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"inferplan/engine/ort"
)

// relocatedEnv is set in a process that was started again with the folders of CUDA's libraries on its path, so
// that this is done only once.
const relocatedEnv = "INFERPLAN_LIBRARY_PATH_SET"

// relocate starts this program again, in the same process, if CUDA's libraries are in folders that the loader does
// not search (inside Python packages, for example), because the loader reads LD_LIBRARY_PATH only when a program
// starts. Without the CUDA provider beside ONNX Runtime it does nothing.
func relocate() {
	if runtime.GOOS != "linux" || os.Getenv(relocatedEnv) != "" {
		return
	}
	folders := ort.LibraryPath()
	if len(folders) == 0 {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return // go on without the libraries: doctor reports what is missing
	}
	os.Setenv(relocatedEnv, "1")
	os.Setenv("LD_LIBRARY_PATH", ort.JoinPath(folders, os.Getenv("LD_LIBRARY_PATH")))
	err = unix.Exec(self, os.Args, os.Environ())
	fmt.Fprintf(os.Stderr, "plan: start again with LD_LIBRARY_PATH=%s: %v\n", os.Getenv("LD_LIBRARY_PATH"), err)
}
