package ort

import (
	"os"
	"syscall"
)

// ours reports whether a folder belongs to this user and nobody else may write there. Only then are
// libraries opened from it.
func ours(dir string) bool {
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() || st.Mode().Perm()&0o022 != 0 {
		return false
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
