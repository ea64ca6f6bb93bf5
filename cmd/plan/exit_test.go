package main

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"inferplan/formats/usage"
)

func TestDisksAreNotBadInput(t *testing.T) {
	for errno, want := range map[syscall.Errno]int{syscall.ENOSPC: exitEnvironment, syscall.EROFS: exitEnvironment, syscall.ENOTDIR: exitUsage, syscall.EACCES: exitUsage} {
		err := fmt.Errorf("write models: %w", &fs.PathError{Op: "write", Path: "m.onnx", Err: errno})
		if got := exitCode(usage.MarkWriting(err)); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}
