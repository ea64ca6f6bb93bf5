package importers

import (
	"os"
	"path/filepath"
	"testing"

	"inferplan/formats/document"
)

// Without a profile that is named, the output is extended only if it is a file: a device or a pipe is never read.
func TestProfileToExtend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	for _, output := range []string{ToStdout, os.DevNull, file} {
		if p, err := ProfileToExtend("", output); err != nil || len(p.Devices) != 0 {
			t.Errorf("%s: %+v, %v", output, p, err)
		}
	}
	for _, text := range []string{"{", ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, paths := range [][2]string{{"", file}, {file, os.DevNull}} {
			if _, err := ProfileToExtend(paths[0], paths[1]); len(document.Findings(err)) == 0 {
				t.Errorf("%q, %q is taken: %v", text, paths, err)
			}
		}
	}
}
